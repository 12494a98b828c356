// What every page of the book can do: tell outputs the theme, open answers on paper, copy code, explain a word, report.
(() => {
  const report = document.currentScript.dataset.report;  // docs/conf.py: where mistakes are reported, if anywhere

  function make(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  // Outputs made for JupyterLab ask it for the theme by this attribute.
  function tellTheme() {
    document.body.dataset.jpThemeLight = String(document.documentElement.dataset.theme !== "dark");
  }

  // ---- copy code

  // A page from a server that has no certificate may not use the clipboard, but may copy what is selected.
  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const field = make("textarea", { value: text });
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    if (!copied) throw new Error("the browser copies nothing here");
  }

  function addCopyButton(code) {
    const button = make("button", { type: "button", className: "copy-code", title: "copy this code" }, "Copy");
    button.addEventListener("click", async () => {
      const prompts = /^(>>> |\.\.\. |\$ )/gm;
      try {
        await copy(code.querySelector("pre").textContent.replace(prompts, "").trimEnd());
        button.textContent = "Copied";
      } catch (error) { button.textContent = "Not copied"; }
      button.addEventListener("blur", () => button.textContent = "Copy", { once: true });
    });
    code.append(button);
  }

  // ---- a word's explanation: its link brings it as a title, which a script shows on focus as well

  const tip = make("div", { className: "word-tip", id: "word-tip", hidden: true });
  tip.setAttribute("role", "tooltip");

  function explain(link) {
    link.dataset.explains = link.title;
    link.removeAttribute("title");
    const show = () => {
      tip.textContent = link.dataset.explains;
      tip.hidden = false;
      const place = link.getClientRects()[0], width = document.documentElement.clientWidth;
      tip.style.left = `${Math.max(8, Math.min(place.left, width - tip.offsetWidth - 8))}px`;
      const below = place.bottom + 6 + tip.offsetHeight < innerHeight;
      tip.style.top = `${below ? place.bottom + 6 : Math.max(8, place.top - 6 - tip.offsetHeight)}px`;
      link.setAttribute("aria-describedby", tip.id);
    };
    const hide = () => {
      tip.hidden = true;
      link.removeAttribute("aria-describedby");
    };
    for (const event of ["mouseenter", "focus"]) link.addEventListener(event, show);
    for (const event of ["mouseleave", "blur"]) link.addEventListener(event, hide);
    link.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
  }

  // ---- report a paragraph

  function addReport(heading) {
    const words = heading.cloneNode(true);
    for (const mark of words.querySelectorAll("a.headerlink")) mark.remove();
    const place = `${document.title}: ${words.textContent.trim()}`;
    const link = make("a", { className: "report-link", title: "report a mistake under this heading" }, "report");
    const fill = () => {
      const said = String(getSelection()).trim().slice(0, 600);
      const id = heading.id || heading.closest("section")?.id || "";
      const body = [`Page: ${location.pathname.split("/").pop()}#${id}`, `Heading: ${words.textContent.trim()}`,
                    ...(said ? ["", "It says:", `> ${said.replaceAll("\n", "\n> ")}`] : []), "", "What is wrong:", ""];
      link.href = `${report}?${new URLSearchParams({ title: place, body: body.join("\n") })}`;
    };
    fill();
    for (const event of ["pointerdown", "focus", "mouseenter"]) link.addEventListener(event, fill);
    heading.append(" ", link);
  }

  document.addEventListener("DOMContentLoaded", () => {
    tellTheme();
    new MutationObserver(tellTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    for (const code of document.querySelectorAll(".bd-article div.highlight")) addCopyButton(code);
    document.body.append(tip);
    for (const link of document.querySelectorAll('.bd-article a[href*="glossary.html#"][title]')) explain(link);
    if (report) for (const heading of document.querySelectorAll(".bd-article :is(h1, h2, h3)")) addReport(heading);
  });
  addEventListener("beforeprint", () => {
    for (const answer of document.querySelectorAll("details.answer")) answer.open = true;
  });
})();
