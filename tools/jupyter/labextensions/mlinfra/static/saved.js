// A notebook's file stays as it was until its reader changes something, and its panels live as long as its kernel.
const WIDGET = "application/vnd.jupyter.widget-view+json";
const LIVE = "mlinfra_widget";  // in an output's metadata: the reference that saving took out (engine/ui/saved_outputs)
const FROM_KERNEL = new Set(["kernelspec", "language_info"]);

// `change`, without the mark that there is something to save where there was nothing before
function unmarked(model, change) {
  const before = model.dirty;
  change();
  model.dirty = before;
}

// Jupyter writes into the metadata what the kernel says of itself, and then takes the notebook for changed.
export function staySaved(context) {
  const { model } = context;
  model.metadataChanged.connect((_, { key }) => {  // comes before the mark
    if (!model.dirty && FROM_KERNEL.has(key)) queueMicrotask(() => { model.dirty = false; });
  });
}

// The file holds pictures of panels. While the kernel that made the panels lives, they are shown themselves.
export function liveAgain(panel, context) {
  const { sessionContext } = context;
  const revive = async () => {
    const kernel = sessionContext.session?.kernel;
    if (panel.isDisposed || !kernel || waiting(panel).next().done) return;
    const { content } = await kernel.requestCommInfo({ target_name: "jupyter.widget" });
    const living = new Set(Object.keys(content.comms ?? {}));
    if (!panel.isDisposed) unmarked(context.model, () => {  // what a cell has shown since is newer than the file
      for (const { outputs, index, output, view } of waiting(panel)) {
        if (living.has(view.model_id)) outputs.set(index, { ...output, data: { ...output.data, [WIDGET]: view } });
      }
    });
  };
  Promise.all([context.ready, sessionContext.ready]).then(revive);
  sessionContext.kernelChanged.connect(() => context.ready.then(revive).catch(() => {}));  // it may end meanwhile
}

function* waiting(panel) {
  for (const cell of panel.content.widgets) {
    const { outputs } = cell.model;
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const output = outputs.get(index).toJSON(), view = output.metadata?.[LIVE];
      if (view && !(WIDGET in output.data)) yield { outputs, index, output, view };
    }
  }
}
