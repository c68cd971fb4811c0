"""The stubs list exactly the names of the C++ module."""

import ast
import pathlib

import pytest

import gluon

HERE = pathlib.Path(gluon.__file__).parent


def public(names):
    return {name for name in names if not name.startswith("_")}


def listed(path):
    """Names and, for classes, their members."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = None
        elif isinstance(node, ast.ClassDef):
            members = [n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in node.body
                       if isinstance(n, (ast.FunctionDef, ast.AnnAssign))]
            found[node.name] = public(members)
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = None
    return {name: members for name, members in found.items() if not name.startswith("_")}


@pytest.mark.parametrize("stub, module", [("_core.pyi", gluon._core), ("theory.pyi", gluon._core.theory)])
def test_stubs_and_module_agree(stub, module):
    stubs = listed(HERE / stub)
    assert set(stubs) == public(dir(module))
    for name, members in stubs.items():
        if members is not None and not issubclass(getattr(module, name), Exception):
            assert members == public(vars(getattr(module, name))), name
