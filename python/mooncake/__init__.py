"""Mooncake: the Python face.

The package is a namespace shared with other distributions: whatever else on sys.path owns a
`mooncake/` folder contributes its submodules here too.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
