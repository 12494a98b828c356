// Panels that live in a page of the book: the controls that Python describes (engine/ui/live), shown by the browser, and
// the lesson's own Python, which runs in a worker (worker.js). tools/book_live.py writes `mlinfraPanels` above this line.
(() => {
  const here = document.querySelector('script[src$="live/live.js"]').src;
  const megabytes = count => `${(count / 1e6).toFixed(1)} MB`;

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  // One worker for all panels of the page, started when the first control is touched.
  const python = {
    worker: null, waiting: new Map(), asked: 0, cards: [], failure: "",

    start() {
      if (this.worker || this.failure) return;
      if (location.protocol === "file:") {
        this.fail("a browser runs it only in pages that come from a server. In the book's folder, type: python -m http.server");
        return;
      }
      this.tell(`Fetching Python: 0 of ${megabytes(mlinfraPanels.bytes)}`);
      try { this.worker = new Worker(new URL("worker.js", here), { type: "module" }); }
      catch (error) { this.fail(error.message); return; }
      this.worker.onerror = event => this.fail(event.message || "its files did not come");
      this.worker.onmessage = ({ data }) => this.hear(data);
      this.worker.postMessage({ makers: mlinfraPanels.makers });
    },

    hear(data) {
      if (data.failed) this.fail(data.failed);
      else if (data.ready) this.tell("");
      else if (data.got !== undefined) {
        const got = Math.min(data.got, mlinfraPanels.bytes);
        this.tell(`Fetching Python: ${megabytes(got)} of ${megabytes(mlinfraPanels.bytes)}`);
      } else {
        const answered = this.waiting.get(data.number);
        this.waiting.delete(data.number);
        answered(data);
      }
    },

    ask(card, sent) {
      this.start();
      if (this.failure) return new Promise(() => {});
      const number = this.asked++;
      this.worker.postMessage({ number, panel: card.name, place: card.place, sent: JSON.stringify(sent) });
      return new Promise(resolve => this.waiting.set(number, resolve));
    },

    tell(words) { for (const card of this.cards) card.note(words); },

    fail(reason) {
      if (this.failure) return;  // the first one says most
      this.failure = reason;
      if (this.worker) this.worker.terminate();
      for (const card of this.cards) card.fail(reason);
    },
  };

  class Card {
    constructor(holder, place) {
      this.holder = holder;
      this.name = holder.dataset.panel;
      this.place = place;
      this.shown = mlinfraPanels.panels[this.name];
      this.wanted = null;
      this.busy = false;
      this.controls = new Map();
      const title = make("b", { className: "live-title", id: `${place}-title` }, this.shown.title);
      const first = make("div", { className: "live-row" }), rest = make("div", { className: "live-row", hidden: true });
      for (const [name, control] of Object.entries(this.shown.controls)) {
        (this.shown.more.includes(name) ? rest : first).append(this.row(name, control));
      }
      this.words = make("div", { className: "live-words mlinfra-words" });
      this.picture = make("div", { className: "live-picture mlinfra-picture", tabIndex: 0, role: "region",
                                   "aria-label": "picture" });
      this.code = make("pre");
      this.folded = make("details", { className: "live-code" }, make("summary", {}, "as code"), this.code);
      this.noted = make("p", { className: "live-note", role: "status" });
      const card = make("div", { className: `live-card mlinfra-panel mlinfra-${this.shown.name}`, role: "group",
                                 "aria-labelledby": title.id },
                        title, first, rest, this.buttons(rest), this.noted, this.words, this.picture, this.folded);
      card.addEventListener("focusin", event => { if (event.target.closest(".live-row")) python.start(); });
      card.addEventListener("pointerdown", event => { if (event.target.closest(".live-row")) python.start(); });
      this.show(this.shown.answer);
      this.note(`Move a control: Python (${megabytes(mlinfraPanels.bytes)}) is then fetched from this book, once, and `
                + "runs in your browser.");
      holder.append(card);
      const still = holder.querySelector(".live-still");
      if (still) still.hidden = true;
    }

    // A control with its label; what it holds is a place in a list, a number, a text or a switch.
    row(name, control) {
      const id = `${this.place}-${name}`, label = make("label", { htmlFor: id }, control.text);
      const box = make("div", { className: `live-control live-${control.kind}` }, label);
      let input, readout = null;
      if (control.kind === "slider") {
        input = make("input", { type: "range", min: 0, max: control.words.length - 1, step: 1 });
        readout = make("output", { htmlFor: id });
      } else if (control.kind === "choice") {
        input = make("select", {}, ...control.words.map((words, place) => make("option", { value: place }, words)));
      } else if (control.kind === "switch") input = make("input", { type: "checkbox" });
      else if (control.kind === "number") input = make("input", { type: "number", min: 1, max: control.most, step: 1 });
      else input = make("input", { type: "text", placeholder: control.placeholder, autocomplete: "off" });
      input.id = id;
      input.dataset.control = name;
      const held = {
        box, start: control.start,
        get: () => {
          if (control.kind === "switch") return input.checked;
          return control.kind === "slider" || control.kind === "choice" ? Number(input.value) : input.value;
        },
        set: value => {
          if (control.kind === "switch") input.checked = value;
          else input.value = value;
          held.say();
        },
        say: () => {
          if (!readout) return;
          readout.value = control.words[Number(input.value)];
          input.setAttribute("aria-valuetext", readout.value);
        },
        enable: on => { input.disabled = !on; },
      };
      held.set(control.start);
      this.controls.set(name, held);
      input.addEventListener(control.kind === "slider" ? "input" : "change", () => {
        held.say();
        for (const [field, others] of Object.entries(this.shown.cleared)) {
          if (others.includes(name)) this.controls.get(field).set("");
        }
        this.change();
      });
      box.append(input);
      if (readout) box.append(readout);
      return box;
    }

    buttons(rest) {
      const reset = make("button", { type: "button", title: "set all controls to what they started with" }, "Reset");
      reset.addEventListener("click", () => {
        for (const control of this.controls.values()) control.set(control.start);
        this.change();
      });
      if (!this.shown.more.length) return make("div", { className: "live-buttons" }, reset);
      const names = this.shown.more.map(name => this.shown.controls[name].text).join(", ");
      const more = make("button", { type: "button", title: `show also: ${names}`, "aria-expanded": "false" }, "More");
      more.addEventListener("click", () => {
        rest.hidden = !rest.hidden;
        more.setAttribute("aria-expanded", String(!rest.hidden));
      });
      return make("div", { className: "live-buttons" }, more, reset);
    }

    // The last value wins: one question is under way, and of those that came meanwhile only the last is asked.
    change() {
      this.wanted = Object.fromEntries([...this.controls].map(([name, control]) => [name, control.get()]));
      this.pump();
    }

    async pump() {
      if (this.busy || !this.wanted) return;
      this.busy = true;
      this.holder.setAttribute("aria-busy", "true");
      const sent = this.wanted;
      this.wanted = null;
      const slow = setTimeout(() => { if (!this.noted.textContent) this.note("Computing…"); }, 400);
      const { answer, error } = await python.ask(this, sent);
      clearTimeout(slow);
      this.note("");
      if (error) this.show({ words: "", picture: "", code: "", hidden: [] });
      if (error) this.note(`⚠ This panel has failed: ${error}`);
      else this.show(JSON.parse(answer));
      this.busy = false;
      this.holder.removeAttribute("aria-busy");
      this.pump();
    }

    show(answer) {
      this.words.innerHTML = answer.words;
      this.picture.innerHTML = answer.picture;
      this.picture.hidden = !answer.picture;
      this.code.textContent = answer.code;
      this.folded.hidden = !answer.code;
      for (const [name, control] of this.controls) control.box.hidden = answer.hidden.includes(name);
    }

    note(words) {
      this.noted.textContent = words;
      this.noted.hidden = !words;
    }

    fail(reason) {
      this.holder.removeAttribute("aria-busy");
      for (const control of this.controls.values()) {
        control.set(control.start);
        control.enable(false);
      }
      for (const button of this.holder.querySelectorAll(".live-buttons button")) button.disabled = true;
      this.show(this.shown.answer);
      this.note(`⚠ Python could not be started here: ${reason}. You see the panel's first position; in the lesson's `
                + "notebook it moves.");
    }
  }

  function start() {
    const known = [...document.querySelectorAll(".live-panel")]
      .filter(holder => holder.dataset.panel in mlinfraPanels.panels && !holder.dataset.args);
    known.forEach((holder, number) => python.cards.push(new Card(holder, `live-card-${number}`)));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
