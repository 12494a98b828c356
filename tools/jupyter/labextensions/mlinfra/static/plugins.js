// The parts of a lesson's page, put together.
import { directives } from "./directives.js";
import { explainWords } from "./glossary.js";
import { liveAgain, staySaved } from "./saved.js";
import { openOnce, startButtons, stayAtTheTop } from "./reading.js";

export async function plugins(shared, style) {
  const [codemirror, palette, state, view] = await Promise.all(
    ["@jupyterlab/codemirror", "@jupyterlab/apputils", "@codemirror/state", "@codemirror/view"].map(shared));

  const page = {
    id: "mlinfra:page",
    description: "Lessons that open saved, stand at their top after Run All, and begin with a button.",
    autoStart: true,
    activate(app) {
      const link = document.createElement("link");
      [link.rel, link.href] = ["stylesheet", style];
      document.head.append(link);
      stayAtTheTop(app);
      explainWords(app);
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew(panel, context) {
          staySaved(context);
          liveAgain(panel, context);
          startButtons(app, panel, context);
          return openOnce(panel, context);
        },
      });
    },
  };

  const lines = {
    id: "mlinfra:directives",
    description: "Lines such as `#| export` are not shown, unless asked for.",
    autoStart: true,
    requires: [codemirror.IEditorExtensionRegistry],
    optional: [palette.ICommandPalette],
    activate(app, editors, commands) {
      const { extension, toggle, shown } = directives(state, view);
      editors.addExtension({
        name: "mlinfra:directives",
        factory: ({ model }) => model?.sharedModel?.cell_type === "code"
          ? codemirror.EditorExtensionRegistry.createImmutableExtension(extension) : null,
      });
      const command = "mlinfra:toggle-directives";
      app.commands.addCommand(command, { label: "Show Directives of Cells", isToggled: shown, execute: toggle });
      commands?.addItem({ command, category: "Notebook Cell Operations" });
    },
  };

  return [page, lines];
}
