"""Runs the examples in the docstrings of the package and of the C++ module."""

import doctest
import importlib
import pkgutil
import sys

import gluon


def main() -> int:
    attempted = failed = 0
    modules = [gluon] + [importlib.import_module(f"gluon.{m.name}") for m in pkgutil.iter_modules(gluon.__path__)]
    for module in modules:
        result = doctest.testmod(module)
        attempted += result.attempted
        failed += result.failed
    # testmod() does not find the docstrings of C++ functions.
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for thing in (gluon.Geometry, gluon.preset):
        runner.run(parser.get_doctest(thing.__doc__, {}, thing.__name__, None, None))
    attempted += runner.tries
    failed += runner.failures
    print(f"{attempted} examples, {failed} failed")
    return 1 if failed or attempted == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
