"""Hand the fields of settings.ini to setuptools."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="], interpolation=None)
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
extras = {key.removesuffix("_requirements"): value.split()
          for key, value in cfg.items() if key.endswith("_requirements")}
extras["lab"] += extras["lessons"]

# how Jupyter shows and saves lessons, copied to where JupyterLab and Notebook 7 look
pages = Path("tools/jupyter")
jupyter = {"etc/jupyter/jupyter_server_config.d": ["tools/jupyter/mlinfra.json"]} if (here / pages).exists() else {}
for path in (here / pages / "labextensions").rglob("*.*"):
    place = path.parent.relative_to(here / pages).as_posix()
    jupyter.setdefault(f"share/jupyter/{place}", []).append(path.relative_to(here).as_posix())

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    license="Apache-2.0",
    keywords=cfg["keywords"].split(),
    classifiers=["Development Status :: 3 - Alpha", "Intended Audience :: Developers",
                 "Intended Audience :: Education", "Programming Language :: Python :: 3",
                 "Topic :: Scientific/Engineering :: Artificial Intelligence"],
    python_requires=f">={cfg['min_python']}",
    packages=find_packages(include=[cfg["lib_name"], f"{cfg['lib_name']}.*"]),
    package_data={cfg["lib_name"]: ["**/*.csv", "**/*.json"]},
    data_files=sorted(jupyter.items()),
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={"console_scripts": cfg["console_scripts"].split(),
                  "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"]},
)
