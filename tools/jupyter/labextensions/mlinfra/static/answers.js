// A guess that is locked opens the answer that stands in the notebook. Jupyter knows where an answer stands as long as
// the page lives that ran its cell; the answer itself names its question, also in a page that was loaded again.
const SHOWN = "mlinfra-answer-", LOCKED = "mlinfra-locked-";  // ids of what the kernel displays, before the question's name
const FOLDED = /^(<div class="mlinfra-answer"[^>]*>)<details( open="")?>/;

export function openAnswers(panel, context) {
  context.sessionContext.iopubMessage.connect((_, { header, content }) => {
    if (header.msg_type !== "update_display_data") return;
    const id = content.transient?.display_id ?? "";
    // the kernel knows the answer, and shows it beside the guess or folded
    if (id.startsWith(SHOWN)) change(panel, id.slice(SHOWN.length), () => content.data);
    // another kernel has measured it, so that this one knows the guess alone
    if (id.startsWith(LOCKED)) change(panel, id.slice(LOCKED.length), data => {
      const open = content.data["text/plain"] === "locked" ? ' open=""' : "";
      return { ...data, "text/html": html(data).replace(FOLDED, `$1<details${open}>`) };
    });
  });
}

const html = data => [data["text/html"] ?? ""].flat().join("");

function change(panel, key, how) {
  for (const { model: { outputs } } of panel.content.widgets) {
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const output = outputs.get(index).toJSON();
      if (!output.data || !isAnswer(html(output.data), key)) continue;
      const data = how(output.data);
      if (html(data) !== html(output.data)) outputs.set(index, { ...output, data });
    }
  }
}

function isAnswer(text, key) {
  const given = /^<div class="mlinfra-answer" data-key="([^"]*)"/.exec(text);
  return given !== null && new DOMParser().parseFromString(given[1], "text/html").body.textContent === key;
}
