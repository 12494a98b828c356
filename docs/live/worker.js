// Python for the panels of one page. What it is asked it answers in order; a page asks one question at a time for a panel.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const near = name => new URL(name, import.meta.url).href;

// A file that does not come ends all: not every failure inside Pyodide ends its own promise.
const fail = words => self.postMessage({ failed: words });
self.addEventListener("unhandledrejection", event => fail(event.reason?.message ?? String(event.reason)));

// Pyodide fetches its own files: count their bytes as they come, so that the page can say how far it is.
const plain = self.fetch.bind(self);
let got = 0, said = 0;
self.fetch = async (address, ...options) => {
  const name = String(address.url ?? address).split("/").pop();
  const response = await plain(address, ...options).catch(error => ({ ok: false, status: error.message }));
  if (!response.ok) {
    fail(`${name} did not come (${response.status})`);
    throw new Error(name);
  }
  if (!response.body) return response;
  const counter = new TransformStream({
    transform(chunk, next) {
      got += chunk.byteLength;
      if (got - said > 500_000) self.postMessage({ got: said = got });
      next.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(counter), { status: response.status, headers: response.headers });
};

async function start(makers) {
  const book = fetch(near("mlinfra.zip")).then(response => response.arrayBuffer());
  const python = await loadPyodide({ indexURL: near("pyodide/") });
  python.unpackArchive(await book, "zip", { extractDir: "/book" });
  python.runPython("import sys; sys.path.insert(0, '/book')");
  const desk = python.pyimport("mlinfra.engine.ui.live").Desk(python.toPy(makers));
  self.postMessage({ ready: true });
  return desk;
}

let desk = null;
self.onmessage = async ({ data }) => {
  if (data.makers) {
    desk = start(data.makers);
    desk.catch(error => fail(error.message));
    return;
  }
  const { number, panel, place, sent } = data;
  let at;
  try { at = await desk; } catch { return; }  // said already
  try { self.postMessage({ number, answer: at.answer(panel, place, sent) }); }
  catch (error) { self.postMessage({ number, error: error.message.trim().split("\n").pop() }); }
};
