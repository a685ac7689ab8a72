"""The page of the admin listener: how devices, models and changes stand, live, for people with a browser.

Owns three static files and the headers they go out with. They ask the admin API for everything, by paths
relative to their own, and so work behind `halogend ui` as well. They must never change anything, load
anything from elsewhere, run script or style that stands in the page, or put a value into it as markup.
"""
