"""What Jupyter is told here: .venv/etc/jupyter/jupyter_server_config.py loads this file (tools/install.sh)."""
import importlib.util
import warnings
from pathlib import Path

import zmq
from jupyter_client import KernelManager

c = get_config()  # noqa: F821
TOOLS = Path(__file__).resolve().parents[1]

# the page of a lesson as it lies here; `pip install` copies it to where any Jupyter finds it
for app in (c.LabApp, c.JupyterNotebookApp): app.extra_labextensions_path = [f"{TOOLS}/jupyter/labextensions"]
c.ServerApp.jpserver_extensions = {"mlinfra.engine.ui.saved_outputs": True}

# else a kernel warns that other users of the machine could listen
if zmq.has("curve") and hasattr(KernelManager, "transport_encryption"):
    c.KernelManager.transport_encryption = "auto"

# a lesson is saved as it is committed, if the dev extra (nbdev) is there to clean it
if importlib.util.find_spec("nbdev"):
    found = importlib.util.spec_from_file_location(f"notebooks of {TOOLS}", TOOLS / "notebooks.py")
    found.loader.exec_module(notebooks := importlib.util.module_from_spec(found))
    c.ContentsManager.pre_save_hook = notebooks.pre_save
    warnings.filterwarnings("ignore", message="Overriding existing pre_save_hook")  # Jupyter sets it twice
