"""How Sphinx makes the book from the pages that tools/book.py stages in _book/source."""
import gc
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))

from book_pages import report_address  # noqa: E402
from notebooks import settings  # noqa: E402

gc.disable()  # a third of Sphinx's time is looking for garbage among documents that it keeps

config = settings()
project, author, copyright = "mlinfra", config["author"], config["copyright"]
version = release = config["version"]
language = "en"

extensions = ["myst_nb", "book_sphinx"]
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # panels are still pictures, or live without a kernel; nothing is fetched
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"
nb_merge_streams = True
nb_number_source_lines = False
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline"]
myst_dmath_allow_space = myst_dmath_allow_digits = False  # "$7,000 or $60,000" is money
myst_heading_anchors = 4
myst_heading_slug_func = "book_stage.anchor"
myst_url_schemes = ("http", "https", "mailto")
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]
exclude_patterns = ["_extra", "_static"]
add_module_names = False
toc_object_entries = False
pygments_style = "a11y-high-contrast-light"

html_theme = "sphinx_book_theme"
html_title = "mlinfra"
html_math_renderer = "mathml"
html_static_path = [str(HERE / "_static"), str(HERE.parent / "_book" / "source" / "_static")]
html_extra_path = [str(HERE.parent / "_book" / "source" / "_extra")]
html_favicon = str(HERE / "_static" / "favicon.svg")
html_context = {"default_mode": "auto"}  # light or dark as the reader's system says, until the button is pressed
html_css_files = ["palette.css", "book.css"]
report = report_address(config["git_url"])
html_js_files = [("book.js", {"data-report": report} if report else {}), "guess.js"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_domain_indices = False
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_navbar_depth": 1,
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
