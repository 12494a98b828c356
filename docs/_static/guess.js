// Guesses: a card takes an answer and keeps it in this browser; the answer that belongs to it opens when it is locked.
(() => {
  const PLACE = "mlinfra-guesses";

  function make(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  // What the reader has locked: key -> guess, question, unit, and what was measured. A browser that keeps nothing (a
  // setting forbids it) has it until the page is left, and the card says so.
  const guesses = {
    all: {}, refused: false,

    read() {
      if (this.refused) return;  // what is kept stands nowhere else
      try { this.all = JSON.parse(localStorage.getItem(PLACE)) ?? {}; }
      catch (error) { this.all = {}; }  // unreadable is like empty; what refuses to be read refuses to be written, too
    },

    // Another page may have locked something meanwhile that this one has not heard of.
    change(how) {
      this.read();
      how(this.all);
      try { localStorage.setItem(PLACE, JSON.stringify(this.all)); }
      catch (error) { this.refused = true; }
    },
  };

  const figure = value => value.toLocaleString("en", { maximumSignificantDigits: 6 });

  // A measurement in as many digits as its spread leaves, as in the notebook (engine/ui/reveals: figure_text).
  function measure(value, spread) {
    if (!spread) return value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 3 });
    const [first, power] = spread.toExponential(1).split("e"), digits = (first.startsWith("1") ? 1 : 0) - power;
    if (digits > 0) return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return (Math.round(value * 10 ** digits) / 10 ** digits).toLocaleString("en");
  }

  const withUnit = (value, unit) => `${figure(value)} ${unit ?? ""}`.trim();

  // The figures of an answer with its unit.
  const told = {
    measured: ({ measured, spread, unit }) =>
      `${measure(measured, spread)}${spread ? ` ± ${measure(spread, spread)}` : ""} ${unit}`.trim(),
    modelled: ({ modelled, spread, unit }) => `${measure(modelled, spread)} ${unit}`.trim(),
  };

  // How far a guess lies from the measurement, with its sign, in the words of the notebook (engine/ui/reveals).
  function error(guess, { measured, unit, spread = 0 }) {
    const off = guess - measured, signed = figures => `${off > 0 ? "+" : "-"}${figures}`;
    if (off === 0) return "exact";
    if (Math.abs(off) <= spread) return "within the spread";
    if (unit === "%") return `off by ${signed(figure(Number(Math.abs(off).toPrecision(2))))} points`;
    if (measured === 0) return `off by ${signed(withUnit(Math.abs(off), unit))}`;
    const percent = Math.round(100 * Math.abs(off / measured));
    return percent ? `off by ${signed(percent.toLocaleString("en"))}%` : "off by less than 1%";
  }

  // Guess, model and measurement as bars on one scale: what was predicted hollow, the measurement solid.
  function bars(rows, answer) {
    const low = Math.min(0, ...rows.map(row => row.value)), high = Math.max(0, ...rows.map(row => row.value));
    const place = value => 100 * (value - low) / (high - low || 1);
    return make("div", { className: "guess-bars" }, ...rows.map(({ name, value, figures, solid }) => {
      const [from, to] = [place(0), place(value)].sort((a, b) => a - b);
      const bar = make("span", { className: solid ? "guess-bar guess-solid" : "guess-bar" });
      bar.style.left = `${from}%`;
      bar.style.width = `${to - from}%`;
      const words = figures + (solid ? "" : `, ${error(value, answer)}`);
      return make("div", { className: "guess-row" }, make("span", { className: "guess-name" }, name),
                  make("span", { className: "guess-track" }, bar), make("span", { className: "guess-words" }, words));
    }));
  }

  class Card {
    constructor(holder) {
      const { key, unit = "" } = holder.dataset;
      Object.assign(this, { holder, key, unit, options: JSON.parse(holder.dataset.options) });
      this.question = holder.firstElementChild.textContent.replace("Guess first.", "").trim();
      this.start = Math.max(0, this.options.indexOf(Number(holder.dataset.start)));
      this.answer = document.querySelector(`.mlinfra-answer[data-key="${CSS.escape(key)}"]`);
      this.folded = this.answer?.closest("details")
        ?? document.querySelector(`details.answer[data-key="${CSS.escape(key)}"]`);
      this.slider = make("input", { type: "range", min: 0, max: this.options.length - 1, step: 1, id: `slide-${key}` });
      this.said = make("output", { className: "guess-value" });
      this.said.htmlFor = this.slider.id;
      this.lock = make("button", { type: "button", className: "guess-lock" }, "Lock my guess");
      this.again = make("button", { type: "button", className: "guess-again" }, "Guess again");
      this.note = make("p", { className: "guess-note" });
      this.note.setAttribute("role", "status");
      this.slider.addEventListener("input", () => this.say());
      this.lock.addEventListener("click", () => this.keep());
      this.again.addEventListener("click", () => this.forget());
      holder.append(make("div", { className: "guess-controls" },
                         make("label", { htmlFor: this.slider.id }, "Your guess"), this.said, this.slider,
                         make("div", { className: "guess-buttons" }, this.lock, this.again)), this.note);
      holder.classList.add("guess-alive");
      this.slider.value = this.start;
      this.opened = false;  // by this card
      this.show();
    }

    get kept() { return guesses.all[this.key]; }

    say() {
      this.said.value = withUnit(this.kept?.guess ?? this.options[this.slider.value], this.unit);
      this.slider.setAttribute("aria-valuetext", this.said.value);
    }

    // What the answer tells of itself.
    get told() {
      const { measured, modelled, spread, called = "the model", how = "measured" } = this.answer?.dataset ?? {};
      const numbers = Object.entries({ measured, modelled, spread }).filter(([, text]) => text);
      return { ...Object.fromEntries(numbers.map(([name, text]) => [name, Number(text)])), called, how, unit: this.unit };
    }

    keep() {
      const kept = { ...this.told, guess: this.options[this.slider.value], question: this.question };
      guesses.change(all => { all[this.key] ??= kept; });  // the first one holds
      this.show();
      this.again.focus();
    }

    forget() {
      guesses.change(all => { delete all[this.key]; });
      this.show();
      this.slider.focus();
    }

    // What is locked, or a slider that waits.
    show() {
      const kept = this.kept;
      this.slider.disabled = this.lock.hidden = Boolean(kept);
      this.again.hidden = !kept;
      this.note.textContent = !kept ? "" : guesses.refused ? "Locked until you leave the page: this browser keeps nothing for it."
        : this.folded ? "Locked. The answer below is open." : "Locked.";
      if (kept && this.options.includes(kept.guess)) this.slider.value = this.options.indexOf(kept.guess);
      this.say();
      this.bars?.remove();
      if (!this.folded) return;
      if (Boolean(kept) !== this.opened) this.folded.open = this.opened = Boolean(kept);
      if (!kept) return;
      const answer = this.told, { measured, modelled, called, how } = answer;
      if (measured === undefined) return;
      const rows = [{ name: "your guess", value: kept.guess, figures: withUnit(kept.guess, answer.unit) }];
      if (modelled !== undefined) rows.push({ name: called, value: modelled, figures: told.modelled(answer) });
      rows.push({ name: how, value: measured, figures: told.measured(answer), solid: true });
      this.bars = bars(rows, answer);  // in the place of those without a guess (book.css)
      this.answer.prepend(this.bars);
    }
  }

  // The page of all guesses: by lesson, each with how far it was off.
  function list(holder) {
    const lessons = JSON.parse(holder.dataset.lessons);
    const off = ({ guess, measured }) => measured ? Math.abs(guess - measured) / Math.abs(measured) : NaN;
    const median = values => {
      const sorted = values.sort((a, b) => a - b), half = Math.floor(sorted.length / 2);
      return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    };
    const table = make("table"), head = ["lesson", "guesses", "off by (median)"];
    table.append(make("thead", {}, make("tr", {}, ...head.map(text => make("th", {}, text)))));
    const body = make("tbody"), parts = [];
    for (const [page, title, asked] of lessons) {
      const mine = asked.filter(key => key in guesses.all).map(key => [key, guesses.all[key]]);
      const known = mine.map(([, each]) => off(each)).filter(Number.isFinite);
      const link = make("a", { href: `${page}.html` }, title);
      body.append(make("tr", {}, make("td", {}, link), make("td", {}, `${mine.length} of ${asked.length}`),
                       make("td", {}, known.length ? `${Math.round(100 * median(known))}%` : "")));
      if (!mine.length) continue;
      parts.push(make("h2", {}, title), make("ul", {}, ...mine.map(([key, each]) => {
        const answer = each.measured === undefined ? ""
          : `; ${each.how} ${told.measured(each)}, ${error(each.guess, each)}`;
        const question = make("a", { href: `${page}.html#guess-${key}` }, each.question);
        return make("li", {}, question, ` Your guess: ${withUnit(each.guess, each.unit)}${answer}.`);
      })));
    }
    table.append(body);
    const all = make("button", { type: "button", className: "guess-again" }, "Forget all guesses");
    all.hidden = !Object.keys(guesses.all).length;
    all.addEventListener("click", () => {
      guesses.change(all => { for (const key of Object.keys(all)) delete all[key]; });
      list(holder);
    });
    holder.replaceChildren(table, ...parts, all);
  }

  function start() {
    guesses.read();
    const cards = [...document.querySelectorAll(".mlinfra-guess[data-options]")].map(holder => new Card(holder));
    const page = document.querySelector(".guesses[data-lessons]");
    const again = () => {
      guesses.read();
      for (const card of cards) card.show();
      if (page) list(page);
    };
    if (page) list(page);
    addEventListener("storage", event => { if (event.key === PLACE || event.key === null) again(); });  // another tab
    addEventListener("pageshow", event => { if (event.persisted) again(); });  // the browser has kept the page
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
