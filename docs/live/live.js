// Panels that live in a page of the book: the controls that Python describes (engine/ui/live), shown by the browser, and
// the lesson's own Python, which runs in a worker (worker.js). Until that is there, answers come from `positions/`: one
// control moved from the start, computed when the book was built. tools/book_live.py writes `mlinfraPanels` above this
// line.
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
    worker: null, waiting: new Map(), asked: 0, cards: [], failure: "", said: "", ready: false,

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
      else if (data.ready) {
        this.ready = true;
        this.tell("");
      }
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
      if (this.failure) return Promise.resolve({ failed: true });
      const number = this.asked++;
      this.worker.postMessage({ number, panel: card.name, place: card.place, sent: JSON.stringify(sent) });
      return new Promise(resolve => this.waiting.set(number, resolve));
    },

    tell(words) {
      this.said = words;
      for (const card of this.cards) card.progress(words);
    },

    fail(reason) {
      if (this.failure) return;  // the first one says most
      this.failure = reason;
      if (this.worker) this.worker.terminate();
      for (const card of this.cards) card.fail(reason);
      for (const answered of this.waiting.values()) answered({ failed: true });
      this.waiting.clear();
    },
  };

  // The answers of a panel that the book knows, fetched by a script tag: that works in a page that is a file, too.
  const known = {
    come: new Map(),

    of(name) {
      if (!mlinfraPanels.known.includes(name)) return Promise.resolve({});
      if (!this.come.has(name)) {
        this.come.set(name, new Promise(resolve => {
          const script = make("script", { src: new URL(`positions/${name}.js`, here).href });
          // what does not come, or an old browser does not unpack: then Python is asked, which says what is wrong
          script.onload = () => resolve(this.read(mlinfraPositions[name]).catch(() => ({})));
          script.onerror = () => resolve({});
          document.head.append(script);
        }));
      }
      return this.come.get(name);
    },

    // What the script has brought is base64 of gzip of JSON.
    async read(text) {
      const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
      const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(plain).json();
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
      this.said = make("div", { className: "live-words mlinfra-words" });
      this.picture = make("div", { className: "live-picture mlinfra-picture", tabIndex: 0, role: "region",
                                   "aria-label": "picture" });
      this.code = make("pre");
      this.folded = make("details", { className: "live-code" }, make("summary", {}, "as code"), this.code);
      this.noted = make("p", { className: "live-note", role: "status" });
      const card = make("div", { className: `live-card mlinfra-panel mlinfra-${this.shown.name}`, role: "group",
                                 "aria-labelledby": title.id },
                        title, make("div", { className: "live-controls" }, first, rest, this.buttons(rest)),
                        this.noted, this.said, this.picture, this.folded);
      for (const near of ["pointerenter", "focusin"]) card.addEventListener(near, () => known.of(this.name), { once: true });
      for (const touched of ["focusin", "pointerdown"]) {
        card.addEventListener(touched, event => { if (event.target.closest(".live-row")) python.start(); });
      }
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
        box, start: control.start, words: control.words, listed: ["slider", "choice", "switch"].includes(control.kind),
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
        this.change(name);
      });
      box.append(input);
      if (readout) box.append(readout);
      return box;
    }

    buttons(rest) {
      const reset = make("button", { type: "button", title: "set all controls to what they started with" }, "Reset");
      reset.addEventListener("click", () => {
        this.back();
        this.change();
      });
      const link = make("button", { type: "button", title: "put this position into the page's address" }, "Link");
      link.addEventListener("click", () => this.link());
      if (!this.shown.more.length) return make("div", { className: "live-buttons" }, reset, link);
      const names = this.shown.more.map(name => this.shown.controls[name].text).join(", ");
      const more = make("button", { type: "button", title: `show also: ${names}`, "aria-expanded": "false" }, "More");
      this.more = open => {
        rest.hidden = !open;
        more.setAttribute("aria-expanded", String(open));
      };
      more.addEventListener("click", () => this.more(rest.hidden));
      return make("div", { className: "live-buttons" }, more, reset, link);
    }

    // Set all controls to what they started with, but for those named.
    back(...others) {
      for (const [name, control] of this.controls) if (!others.includes(name)) control.set(control.start);
    }

    values() { return Object.fromEntries([...this.controls].map(([name, control]) => [name, control.get()])); }

    // What differs from the start: control -> value.
    moved(sent) {
      return Object.fromEntries(Object.entries(sent).filter(([name, value]) => String(value) !== String(this.controls.get(name).start)));
    }

    // The address of this position: a listed value by its words, which outlive a longer list.
    link() {
      const address = new URL(location.href);
      address.search = address.hash = "";
      address.searchParams.set("panel", this.holder.id);
      for (const [name, value] of Object.entries(this.moved(this.values()))) {
        address.searchParams.set(name, this.controls.get(name).words?.[value] ?? String(value));
      }
      address.hash = this.holder.id;
      history.replaceState(null, "", address);
      const told = copied => this.note(`The page's address now holds this position${copied}.`);
      navigator.clipboard ? navigator.clipboard.writeText(address.href).then(() => told(", and is copied"), () => told(""))
                          : told("");
    }

    // The position that the page's address asks for.
    restore(asked) {
      const unknown = [];
      for (const [name, words] of asked) {
        const control = this.controls.get(name);
        if (!control) continue;
        const value = control.words ? control.words.indexOf(words) : typeof control.start === "boolean" ? words === "true" : words;
        if (value === -1) unknown.push(`${this.shown.controls[name].text} ${words}`);
        else control.set(value);
        if (this.shown.more.includes(name)) this.more(true);
      }
      this.change();
      if (unknown.length) this.note(`This page does not know ${unknown.join(", ")} any more.`);
    }

    // The last value wins: one question is under way, and of those that came meanwhile only the last is asked. Where
    // Python does not come, one control at a time is moved.
    change(name) {
      if (python.failure) this.back(name);
      this.wanted = this.values();
      this.last = name;
      this.pump();
    }

    async pump() {
      if (this.busy || !this.wanted) return;
      this.busy = true;
      this.holder.setAttribute("aria-busy", "true");
      const sent = this.wanted;
      this.wanted = null;
      const found = python.ready ? null : await this.known(sent);
      if (found) this.show(found);
      else await this.compute(sent);
      this.busy = false;
      this.holder.removeAttribute("aria-busy");
      this.pump();
    }

    // The answer that the book brings for these values, if it brings one.
    async known(sent) {
      const moved = JSON.stringify(this.moved(sent));
      return moved === "{}" ? this.shown.answer : (await known.of(this.name))[moved];
    }

    async compute(sent) {
      const slow = setTimeout(() => { if (!this.noted.textContent) this.note("Computing…"); }, 400);
      const { answer, error, failed } = await python.ask(this, sent);
      clearTimeout(slow);
      if (failed) {  // said already
        if (!this.wanted) this.back();
        if (!this.wanted) this.show(this.shown.answer);
        return;
      }
      this.note("");
      if (error) this.show({ words: "", picture: "", code: "", hidden: [] });
      if (error) this.note(`⚠ This panel has failed: ${error}`);
      else this.show(JSON.parse(answer));
    }

    show(answer) {
      this.said.innerHTML = answer.words;
      this.picture.innerHTML = answer.picture;
      this.picture.hidden = !answer.picture;
      this.code.textContent = answer.code;
      this.folded.hidden = !answer.code;
      for (const [name, control] of this.controls) control.box.hidden = answer.hidden.includes(name);
    }

    // How far Python is; until it is there, some positions are known.
    progress(words) {
      const some = words && mlinfraPanels.known.includes(this.name);
      this.note(words + (some ? ". Until it is here, the book itself answers while one control is moved." : ""));
    }

    note(words) {
      this.noted.textContent = words;
      this.noted.hidden = !words;
    }

    fail(reason) {
      const some = mlinfraPanels.known.includes(this.name);
      for (const control of this.controls.values()) control.enable(some && control.listed);
      if (!some || !this.controls.get(this.last)?.listed) this.last = undefined;
      this.note(`⚠ Python could not be started here: ${reason}. `
                + (some ? "The book brings the answers for one control moved from the start; the others go back."
                        : "You see the panel's first position; in the lesson's notebook it moves."));
      this.change(this.last);
    }
  }

  function start() {
    const alive = [...document.querySelectorAll(".live-panel")]
      .filter(holder => holder.dataset.panel in mlinfraPanels.panels && !holder.dataset.args);
    alive.forEach((holder, number) => python.cards.push(new Card(holder, `live-card-${number}`)));
    const asked = new URLSearchParams(location.search), place = asked.get("panel");
    const card = python.cards.find(each => each.holder.id === place);
    if (!card) return;
    card.restore(asked);
    card.holder.scrollIntoView();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
