"""The examples in the docstrings of the package and of the C++ module run."""

import doctest
import importlib
import pkgutil

import pytest

import gluon

MODULES = ["gluon", *(f"gluon.{module.name}" for module in pkgutil.iter_modules(gluon.__path__))]


def test_docstrings_of_modules():
    results = [doctest.testmod(importlib.import_module(name)) for name in MODULES]
    assert sum(result.attempted for result in results) > 0 and not any(result.failed for result in results)


@pytest.mark.parametrize("thing", [gluon.Geometry, gluon.preset])
def test_docstrings_of_cpp(thing):
    runner = doctest.DocTestRunner()  # testmod() does not find them
    runner.run(doctest.DocTestParser().get_doctest(thing.__doc__, {}, thing.__name__, None, None))
    assert runner.tries > 0 and runner.failures == 0
