// A picture that was saved tells its values under the mouse, as it does in its panel: Jupyter shows SVG as an image, in
// which nothing can be pointed at. The package's drawings are put into the page; any other stays an image.
const SVG = "image/svg+xml";
const ELEMENTS = new Set(`svg g rect circle ellipse line path polyline polygon text tspan title desc defs clipPath use
  image style`.split(/\s+/));

export function inlinePictures(rendermime, RenderedSVG) {
  class Drawing extends RenderedSVG {
    async render(model) {
      const svg = model.trusted ? drawing([model.data[SVG]].flat().join("")) : null;
      if (!svg) return super.render(model);
      this.node.replaceChildren(svg);
    }
  }
  rendermime.addFactory({ safe: false, mimeTypes: [SVG], createRenderer: options => new Drawing(options) }, 79);
}

// The element, or null for what the package does not draw.
function drawing(source) {
  const svg = new DOMParser().parseFromString(source, SVG).documentElement;
  if (!svg.matches("svg.mlinfra-svg") || ![svg, ...svg.querySelectorAll("*")].every(isHarmless)) return null;
  return document.importNode(svg, true);
}

function isHarmless(element) {
  if (!ELEMENTS.has(element.localName)) return false;
  if (element.localName === "style" && !looksInside(element.textContent)) return false;
  return [...element.attributes].every(({ localName, value }) => {
    if (/^on/i.test(localName)) return false;
    if (localName === "href") return /^(#|data:image\/(png|jpeg);base64,)/.test(value);
    return !/url\((?!#)/i.test(value);
  });
}

// Whether each rule is for the package's drawings alone.
function looksInside(css) {
  const rules = css.replace(/@media[^{}]*\{/g, "").split("{").slice(0, -1).map(part => part.split("}").pop());
  return !/@(?!media)|url\(|expression/i.test(css) && rules.every(rule => rule.includes(".mlinfra-svg"));
}
