"""Measures functions of C++ and Python sources: (name, first line, lines) of each.

The C++ side is a scanner, not a parser: it blanks comments, literals and preprocessor lines, then
follows braces. A lambda counts to the function around it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

BLANKED = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/
    | R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"
    | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'
    | ^[ \t]*\#(?:\\\n|[^\n])*
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
TYPE_HEAD = re.compile(r"^(template\s*<.*>\s*)?(class|struct|union|enum|namespace|extern)\b", re.S)
NAME = re.compile(r"((?:[\w:]|<[^<>()]*>)*~?(?:operator\s*[^\s\w(]+|operator\s*\(\)|\w+))\s*$")


@dataclass(frozen=True)
class Function:
    name: str
    line: int
    lines: int


def blank(text: str) -> str:
    """The text with comments, literals and preprocessor lines as spaces; line breaks stay."""
    return BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def function_name(head: str) -> str:
    paren = head.index("(")
    if head.startswith(("TEST", "RC_GTEST")):
        return re.sub(r"\s+", "", head)
    match = NAME.search(head[:paren])
    return re.sub(r"\s+", "", match[1]) if match else "lambda"


def is_member_initializer(head: str) -> bool:
    """The brace after `Foo(int a) : a_` opens an initial value, not the body."""
    return bool(re.search(r"\)\s*(noexcept\s*)?:[^:]", head)) and bool(
        re.search(r"[\w>]\s*$", head)
    )


def cpp_functions(text: str) -> list[Function]:
    text = blank(text)
    found: list[Function] = []
    stack: list[tuple[str, str, int]] = []  # kind, name, first line
    depth_in_function = 0
    head_start, line, head_line = 0, 1, 1
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        if head_start == position and char.isspace():
            head_start, head_line = position + 1, line
        if char == "{":
            head = text[head_start:position].strip()
            if depth_in_function:
                stack.append(("block", "", line))
                depth_in_function += 1
            elif is_member_initializer(head):
                stack.append(("value", "", line))
                continue
            elif "(" in head and not TYPE_HEAD.match(head):
                stack.append(("function", function_name(head), head_line))
                depth_in_function = 1
            else:
                stack.append(("scope", "", line))
        elif char == "}" and stack:
            kind, name, first = stack.pop()
            if kind == "value":
                continue
            if depth_in_function:
                depth_in_function -= 1
                if not depth_in_function:
                    found.append(Function(name, first, line - first + 1))
        if char in "{};" and not (stack and stack[-1][0] == "value"):
            head_start, head_line = position + 1, line
    return found


def python_functions(text: str) -> list[Function]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            found.append(Function(node.name, node.lineno, node.end_lineno - node.lineno + 1))
    return found


def functions_of(path: Path) -> list[Function]:
    text = path.read_text(errors="replace")
    return python_functions(text) if path.suffix == ".py" else cpp_functions(text)
