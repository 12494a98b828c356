// Where a reader stands, what begins a lesson, and a second tab on the same notebook.
const WIDGET = "application/vnd.jupyter.widget-view+json";

// After Run All Jupyter goes to the last cell. A lesson is read from its beginning, or from the cell that failed.
export function stayAtTheTop(app) {
  app.commands.commandExecuted.connect((_, { id, result }) => {
    const notebook = app.shell.currentWidget?.content;
    if (id !== "notebook:run-all-cells" || !notebook?.scrollToItem) return;
    goTo(notebook, 0, "start");
    result.then(ran => {
      const failed = notebook.widgets.findIndex(cell => hasOutput(cell.model, output => output.type === "error"));
      if (!ran && failed >= 0) goTo(notebook, failed, "smart");
    });
  });
}

function goTo(notebook, index, place) {
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  notebook.scrollToItem(index, place).catch(() => {});  // another call has taken its place
}

function hasOutput({ outputs }, is) {
  for (let i = 0; i < (outputs?.length ?? 0); i += 1) if (is(outputs.get(i))) return true;
  return false;
}

// A panel's cell shows a button instead of the first line of its code, as long as its output is a still picture. The
// bar at the left of the cell opens the code as ever. The cell that installs the package elsewhere is not shown.
export function startButtons(app, panel, context) {
  context.ready.then(() => {
    for (const cell of panel.content.widgets) {
      if (cell.model.id === "install") cell.node.classList.add("mlinfra-install");
      else if (onlyDirectives(cell.model)) cell.node.classList.add("mlinfra-only-directives");
      else cell.ready.then(() => {  // when it comes into view
        nameFolded(cell);
        if (isPanel(cell.model)) addStart(app, panel, cell);
      });
    }
  });
}

const DIRECTIVE = /^\s*#\s*\|/;

function onlyDirectives(model) {
  const lines = model.type === "code" ? model.sharedModel.getSource().split("\n").filter(line => line.trim()) : [];
  return lines.length > 0 && lines.every(line => DIRECTIVE.test(line));
}

// A folded cell is named by its first line of code.
function nameFolded(cell) {
  const label = cell.node.querySelector(".jp-InputPlaceholder .jp-PlaceholderText");
  if (!label) return;
  const name = () => {
    const lines = cell.model.sharedModel.getSource().split("\n");
    if (DIRECTIVE.test(label.textContent)) label.textContent = lines.find(line => !DIRECTIVE.test(line)) ?? "";
  };
  new MutationObserver(name).observe(label, { childList: true, characterData: true, subtree: true });
  name();
}

function isPanel(model) {
  return model.type === "code" && model.getMetadata("jupyter")?.source_hidden
    && /_panel\(/.test(model.sharedModel.getSource());
}

function addStart(app, panel, cell) {
  const bar = document.createElement("div"), button = document.createElement("button");
  [bar.className, button.className, button.textContent] = ["mlinfra-start", "jp-mod-styled", "▶ Start"];
  button.title = "run this cell: the sliders appear, and the picture moves";
  bar.append(button);
  cell.node.classList.add("mlinfra-panel-cell");
  cell.node.querySelector(".jp-Cell-outputWrapper").before(bar);

  const refresh = () => {
    bar.hidden = hasOutput(cell.model, output => WIDGET in output.data);
    [button.disabled, button.textContent] = [false, "▶ Start"];
  };
  button.addEventListener("click", () => {
    [button.disabled, button.textContent] = [true, "Starting …"];
    panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
    panel.content.deselectAll();
    app.commands.execute("notebook:run-cell").finally(refresh);
  });
  cell.model.outputs.changed.connect(() => { if (!button.disabled) refresh(); });
  refresh();
}

// Importing PyTorch takes seconds, and so does what it imports at its first count without data. A kernel begins with it
// while the first lines are read, so that Start answers at once.
const WARM_UP = `__import__("threading").Thread(
    target=lambda: [__import__(name) for name in ("torch", "pandas", "torch._dynamo")],
    name="mlinfra warm-up", daemon=True).start()`;

export function warmUp(panel, context) {
  Promise.all([context.ready, context.sessionContext.ready]).then(() => {
    if (!panel.content.widgets.some(({ model }) => isPanel(model))) return;
    context.sessionContext.session?.kernel?.requestExecute({ code: WARM_UP, silent: true, store_history: false });
  });
}

// Two tabs on one notebook overwrite each other's file, and the panels of one answer only there. Two views of it in one
// tab do not: a channel hears those, too.
const TAB = Math.random();

export function openOnce(panel, context) {
  const channel = new BroadcastChannel("mlinfra notebooks");
  const say = (what, to) => channel.postMessage({ what, path: context.path, from: TAB, to });
  channel.onmessage = ({ data }) => {
    if (data.path !== context.path || data.from === TAB) return;
    if (data.what === "opened") say("here already", data.from);
    if (data.what === "here already" && data.to === TAB) tell(panel, "This notebook is open in another tab of this browser. "
      + "Go on there: panels answer in the tab that ran them, and two tabs overwrite each other's file.");
  };
  context.ready.then(() => { if (!panel.isDisposed) say("opened"); });
  return { isDisposed: false, dispose() { this.isDisposed = true; channel.close(); } };
}

function tell(panel, words) {
  if (panel.node.querySelector(".mlinfra-notice")) return;
  const notice = document.createElement("div"), close = document.createElement("button");
  [notice.className, notice.textContent] = ["mlinfra-notice", words];
  notice.setAttribute("role", "alert");
  [close.textContent, close.className] = ["Understood", "jp-mod-styled"];
  close.addEventListener("click", () => notice.remove());
  notice.append(close);
  panel.node.append(notice);
}
