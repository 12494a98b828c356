// A link into the glossary explains its word under the mouse and in focus, and leads to the word; no kernel is started.
const LINK = 'a[href*="glossary.ipynb"]';

export function explainWords(app) {
  const entries = new Map();  // path of a glossary -> its entries, once
  const card = document.createElement("div");
  [card.className, card.id, card.hidden] = ["mlinfra-word", "mlinfra-word", true];
  card.setAttribute("role", "tooltip");
  document.body.append(card);
  let at = null;

  // Jupyter makes http://host/files/nbs/glossary.ipynb?...#word of a link
  const place = link => decodeURIComponent(new URL(link.href).pathname).split("/files/").slice(1).join("/files/");
  const word = link => decodeURIComponent(link.hash.slice(1));

  function read(path) {
    if (!entries.has(path)) {
      const found = app.serviceManager.contents.get(path).then(parsed);
      entries.set(path, found);
      found.catch(() => entries.delete(path));  // the server may answer the next time
    }
    return entries.get(path);
  }

  async function show(link) {
    at = link;
    const found = (await read(place(link)).catch(() => new Map())).get(word(link));
    if (at !== link || !found) return;
    card.replaceChildren(Object.assign(document.createElement("b"), { textContent: found.term }), ` ${found.text}`);
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    stand();
  }
  function stand() {
    if (!at) return;
    const box = at.getBoundingClientRect(), { offsetWidth: wide, offsetHeight: high } = card;
    card.style.left = `${Math.max(8, Math.min(box.left, innerWidth - wide - 8))}px`;
    card.style.top = `${box.bottom + high + 8 > innerHeight ? box.top - high - 6 : box.bottom + 6}px`;
  }
  function hide() {
    at?.removeAttribute("aria-describedby");
    [at, card.hidden] = [null, true];
  }

  const linked = event => {
    const link = event.target.closest?.(LINK);
    return link?.hash && link.closest(".jp-Notebook") ? link : null;
  };
  for (const start of ["mouseover", "focusin"]) {
    document.addEventListener(start, event => { const link = linked(event); if (link && link !== at) show(link); });
  }
  for (const end of ["mouseout", "focusout"]) {
    document.addEventListener(end, event => { if (linked(event)) hide(); });
  }
  document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", stand, true);
  document.addEventListener("click", event => {
    const link = linked(event);
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    hide();
    go(app, place(link), word(link));
  }, true);

  app.docRegistry.addWidgetExtension("Notebook", {
    createNew(panel, context) {
      if (/(^|\/)glossary\.ipynb$/.test(context.path)) {  // it has no code
        const preference = context.sessionContext.kernelPreference;
        context.sessionContext.kernelPreference = { ...preference, shouldStart: false, canStart: false };
      }
    },
  });
}

const anchorOf = term => term.trim().replaceAll(" ", "-");  // as links name it

// anchor -> its term, and the explanation in plain words
function parsed({ content }) {
  const found = new Map();
  for (const { source } of content.cells) {
    const [, ...parts] = [source].flat().join("").split(/^### (.+)$/m);
    for (let i = 0; i < parts.length; i += 2) {
      const text = parts[i + 1].split(/^## /m)[0].trim().split("\n\n")[0];
      found.set(anchorOf(parts[i]), { term: parts[i].trim(), text: plain(text) });
    }
  }
  return found;
}

function plain(markdown) {
  const text = markdown.replace(/\[\d\d [^\]]*\]\([^)]*\)/g, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1");
  return text.replace(/\*\*?|`/g, "").replace(/\\\$/g, "$").replace(/\s+/g, " ").trim();
}

async function go(app, path, anchor) {
  const panel = await app.commands.execute("docmanager:open", { path, factory: "Notebook" });
  if (!panel?.context) return;  // Notebook 7 opens another tab of the browser
  await panel.context.ready;
  const { content } = panel, isTerm = line => line.startsWith("### ") && anchorOf(line.slice(4)) === anchor;
  const index = content.widgets.findIndex(cell => cell.model.sharedModel.getSource().split("\n").some(isTerm));
  if (index < 0) return;
  content.activeCellIndex = index;
  const cell = content.widgets[index];
  content.scrollToItem(index, "start").catch(() => {});  // so that the cell is made; its promise may stay open
  await cell.ready;
  const title = await found(() => [...cell.node.querySelectorAll("h3")].find(isAnchor));
  title?.scrollIntoView({ block: "start" });
  title?.classList.add("mlinfra-found");

  function isAnchor(heading) { return (heading.dataset.jupyterId ?? heading.id) === anchor; }
}

// Markdown is rendered a moment after its cell is there.
async function found(find) {
  for (let tries = 0; tries < 300 && !find(); tries += 1) await new Promise(requestAnimationFrame);
  return find();
}
