// What JupyterLab and Notebook 7 look for in an extension that was built before. This one is written by hand: its parts
// are the modules beside this file, and the libraries that Jupyter has loaded already come from its share scope.
(() => {
  const here = document.currentScript.src;
  let scope;

  async function shared(name) {
    const versions = Object.values(scope[name]);
    const factory = await (versions.find(version => version.loaded) ?? versions[0]).get();
    return factory();
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.mlinfra = {
    init: given => { scope = given; },
    get: async () => {
      const { plugins } = await import(new URL("plugins.js", here));
      const found = await plugins(shared, new URL("page.css", here));
      return () => ({ __esModule: true, default: found });
    },
  };
})();
