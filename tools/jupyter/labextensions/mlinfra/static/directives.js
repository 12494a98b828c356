// Lines such as `#| export` at the top of a cell are for the tools that build the book. They stay in the source, and
// are not shown; typing and deleting beside them does not touch them.
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
  const kept = EditorState.changeFilter.of(tr => {
    const end = shown ? -1 : endOfDirectives(tr.startState.doc);
    const typed = tr.isUserEvent("input") || tr.isUserEvent("delete") || tr.isUserEvent("move");
    return end < 0 || !typed ? true : [0, Math.min(end + 1, tr.startState.doc.length)];
  });
  const known = ViewPlugin.define(view => {
    views.add(view);
    return { destroy: () => views.delete(view) };
  });

  return {
    extension: [lines, kept, known],
    shown: () => shown,
    toggle: () => {
      shown = !shown;
      for (const view of views) view.dispatch({ effects: changed.of(null) });
    },
  };
}
