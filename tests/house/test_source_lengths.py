"""The length scanner on the shapes that C++ has."""

from __future__ import annotations

from source_lengths import Function, cpp_functions, python_functions

CPP = r"""
#define BRACES { { {
namespace a::b {
struct Point {
  int x{0};
  int Norm() const { return x; }
};
// } a brace in a comment
Foo::Foo(int a, std::string b)
    : a_{a},
      b_(std::move(b)) {
  Run();
}
const char* kText = "} {" R"(
}}} )";
template <typename T>
Result<std::vector<T>> Foo::Read(const T& value) {
  auto inner = [&](int x) {
    return x + 1'000'000;
  };
  char c = '{';
  for (;;) { break; }
  return inner(value);
}
enum class Kind : int { kA, kB };
TEST(Foo, Bar) {
  EXPECT_TRUE(true);
}
bool operator==(const A& a, const A& b) { return true; }
int table[] = {1, 2, 3};
}  // namespace a::b
"""


def test_cpp() -> None:
    assert cpp_functions(CPP) == [
        Function("Norm", 6, 1),
        Function("Foo::Foo", 9, 5),
        Function("Foo::Read", 16, 9),
        Function("TEST(Foo,Bar)", 26, 3),
        Function("operator==", 29, 1),
    ]


def test_python() -> None:
    text = (
        "class A:\n    def f(self):\n        return 1\n\nasync def g():\n    x = 1\n    return x\n"
    )
    assert sorted(python_functions(text), key=lambda f: f.line) == [
        Function("f", 2, 2),
        Function("g", 5, 3),
    ]
