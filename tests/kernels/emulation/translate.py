#!/usr/bin/env python3
"""translate.py SOURCE.cu TARGET.cpp: rewrites kernel launches for emulated_cuda.h."""

import re
import sys
from pathlib import Path

# A name, perhaps with template arguments, or a choice in parentheses.
LAUNCH = re.compile(r"((?:\w+(?:<[^<>;(){}]*>)?)|\([^()]*\))\s*<<<(.*?)>>>\(", re.DOTALL)


def main():
    source, target = map(Path, sys.argv[1:])
    text = LAUNCH.sub(r"gluon::emulated::Launch(\2)(\1, ", source.read_text())
    target.write_text(f'#line 1 "{source}"\n' + text)


if __name__ == "__main__":
    main()
