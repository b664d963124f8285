"""How Sphinx makes the site. `worldsize site` puts this beside the pages it has made from the executed notebooks.

Nothing on a page comes from elsewhere: formulas are MathML, and fonts and scripts lie beside the pages.
"""

from pathlib import Path

from worldsize import __version__

project = "World Size"
author = copyright = "World Size contributors"  # Sphinx's name for it
release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "worldsize.authoring.site.sphinx_parts"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # a lab's first heading may follow its cover
nb_execution_mode = "off"  # the tests have executed them
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_inherit_docstrings = False

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "World Size"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
templates_path = ["_templates"]
html_extra_path = ["_extra"]  # covers, where the course map has them
html_css_files = ["worldsize.css"]
html_js_files = [("worldsize.js", {"defer": "defer"})]
# pages of no section have nothing to say beside them
ALONE = (
    *("index", "run", "teach", "more", "platforms", "own-work", "two-free-gpus", "clusters", "instructors", "glossary"),
    *("support", "papers", "faq", "what-earns-points", "visual-language"),
)
html_sidebars = {"**": ["sidebar-nav-bs.html"]} | dict.fromkeys(ALONE, [])
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_nav_level": 1,
    "navigation_depth": 2,
    "collapse_navigation": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["licence.html"],
    "footer_end": [],
    "back_to_top_button": False,
}
