// The parts of a lesson's page, put together.
import { openAnswers } from "./answers.js";
import { directives } from "./directives.js";
import { explainWords } from "./glossary.js";
import { inlinePictures } from "./pictures.js";
import { liveAgain, staySaved } from "./saved.js";
import { openOnce, startButtons, stayAtTheTop, warmUp } from "./reading.js";

export async function plugins(shared, style) {
  const [codemirror, palette, rendering, state, view] = await Promise.all([
    "@jupyterlab/codemirror", "@jupyterlab/apputils", "@jupyterlab/rendermime", "@codemirror/state", "@codemirror/view",
  ].map(shared));

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
          openAnswers(panel, context);
          startButtons(app, panel, context);
          warmUp(panel, context);
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

  const pictures = {
    id: "mlinfra:pictures",
    description: "Saved pictures tell their values under the mouse.",
    autoStart: true,
    requires: [rendering.IRenderMimeRegistry],
    activate(_app, rendermime) { inlinePictures(rendermime, rendering.RenderedSVG); },
  };

  return [page, lines, pictures];
}
