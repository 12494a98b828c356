// Lines such as `#| export` at the top of a cell are for the tools that build the book. They stay in the source, and
// are not shown; typing and deleting beside them does not touch them, and what is typed where they stand comes below.
const DIRECTIVE = /^\s*#\s*\|/;

function endOfDirectives(doc) {
  let last = 0;
  while (last < doc.lines && DIRECTIVE.test(doc.line(last + 1).text)) last += 1;
  return last === 0 ? -1 : doc.line(last).to;
}

export function directives({ EditorState, StateEffect, StateField }, { Decoration, EditorView, ViewPlugin }) {
  const views = new Set(), changed = StateEffect.define();
  let shown = false;

  const hide = state => {
    const end = shown ? -1 : endOfDirectives(state.doc);
    return end < 0 ? Decoration.none : Decoration.set([Decoration.replace({ block: true }).range(0, end)]);
  };
  const lines = StateField.define({
    create: hide,
    update: (value, tr) => tr.docChanged || tr.effects.some(effect => effect.is(changed)) ? hide(tr.state) : value,
    provide: field => EditorView.decorations.from(field),
  });
  // the first place that is shown, which a cell of directives alone does not have yet; 0 where nothing is hidden
  const first = ({ doc }) => shown ? 0 : endOfDirectives(doc) + 1;
  const astray = tr => tr.isUserEvent("input") && !tr.isUserEvent("input.drop")
    && tr.startState.selection.main.from < first(tr.startState);
  const kept = EditorState.changeFilter.of(tr => {
    const typed = tr.isUserEvent("input") || tr.isUserEvent("delete") || tr.isUserEvent("move");
    const end = Math.min(first(tr.startState), tr.startState.doc.length);
    return !typed || !end || astray(tr) ? true : [0, end];
  });
  const below = EditorState.transactionFilter.of(tr => {
    if (!astray(tr) || !tr.docChanged) return tr;
    const { doc, selection: { main } } = tr.startState, from = Math.min(first(tr.startState), doc.length);
    let insert = from < first(tr.startState) ? "\n" : "";
    tr.changes.iterChanges((_from, _to, _start, _end, text) => { insert += text; });
    return { changes: { from, to: Math.max(from, main.to), insert }, selection: { anchor: from + insert.length },
             userEvent: "input.type", scrollIntoView: true };
  });
  const known = ViewPlugin.define(view => {
    views.add(view);
    return { destroy: () => views.delete(view) };
  });

  return {
    extension: [lines, kept, below, known],
    shown: () => shown,
    toggle: () => {
      shown = !shown;
      for (const view of views) view.dispatch({ effects: changed.of(null) });
    },
  };
}
