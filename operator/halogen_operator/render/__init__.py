"""What is wanted -> the manifests of its children. Pure.

Owns what a child looks like; must never know how it is applied, what a live one looks like beyond `Held`, or which
pod has which document. `render` is all that others call, with `Held` for what of the cluster counts.
"""

from halogen_operator.render.held import Held
from halogen_operator.render.manifest import Manifest, digest, selector
from halogen_operator.render.rendered import bare_document, render, template_of

__all__ = ["Held", "Manifest", "bare_document", "digest", "render", "selector", "template_of"]
