// The public geometry face: boxes as (offset, shape) pairs or as objects that cover one.
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "geometry/box.h"
#include "geometry/cover.h"
#include "python/bindings.h"
#include "python/convert.h"
#include "python/errors.h"

namespace mooncake::python {

namespace {

// Geometry speaks of anything with whole numbers (numpy's too), unlike the contracts.
manifest::Extents WholeNumbers(nb::handle value) {
  manifest::Extents numbers;
  for (nb::handle item : nb::iter(value)) {
    const nb::object number = nb::steal(PyNumber_Index(item.ptr()));
    if (!number.is_valid()) {
      PyErr_Clear();
      Refuse("a box is made of integers, got " + std::string(nb::str(nb::repr(item)).c_str()));
    }
    int overflow = 0;
    numbers.push_back(PyLong_AsLongLongAndOverflow(number.ptr(), &overflow));
    if (overflow != 0) {
      Refuse("a box's offsets and extents must fit in a signed 64-bit integer, got " +
             std::string(nb::str(number).c_str()));
    }
  }
  return numbers;
}

void RequireSameLength(size_t a, size_t b) {
  if (a == b) return;
  Refuse(fmt::format("zip() arguments have different lengths: {} and {}", a, b));
}

geometry::Box BoxOf(nb::handle offset, nb::handle shape) {
  const manifest::Extents begin = WholeNumbers(offset);
  const manifest::Extents extents = WholeNumbers(shape);
  RequireSameLength(begin.size(), extents.size());
  return ValueOrThrow(geometry::MakeBox(begin, extents));
}

geometry::Box BoxOf(nb::handle box) {
  if (nb::hasattr(box, N().global_offset)) {
    return BoxOf(Get(box, N().global_offset), Get(box, N().local_shape));
  }
  const nb::tuple pair = nb::tuple(nb::borrow(box));
  if (pair.size() != 2) Refuse("a box is a pair of offset and shape");
  return BoxOf(pair[0], pair[1]);
}

std::vector<geometry::Box> BoxesOf(nb::handle boxes) {
  std::vector<geometry::Box> made;
  for (nb::handle box : nb::iter(boxes)) {
    made.push_back(BoxOf(box));
    RequireSameLength(static_cast<size_t>(made.front().rank()),
                      static_cast<size_t>(made.back().rank()));
  }
  return made;
}

// Any whole numbers: an empty inner box, for one, lies wherever its offset does.
bool BoxContains(nb::handle outer_offset, nb::handle outer_shape, nb::handle inner_offset,
                 nb::handle inner_shape) {
  const manifest::Extents outer_begin = WholeNumbers(outer_offset);
  const manifest::Extents outer_extent = WholeNumbers(outer_shape);
  const manifest::Extents inner_begin = WholeNumbers(inner_offset);
  const manifest::Extents inner_extent = WholeNumbers(inner_shape);
  for (const auto* other : {&outer_extent, &inner_begin, &inner_extent}) {
    RequireSameLength(outer_begin.size(), other->size());
  }
  __extension__ using Wide = __int128;
  for (size_t i = 0; i < outer_begin.size(); ++i) {
    if (inner_begin[i] < outer_begin[i]) return false;
    if (Wide{inner_begin[i]} + inner_extent[i] > Wide{outer_begin[i]} + outer_extent[i]) {
      return false;
    }
  }
  return true;
}

bool BoxesOverlap(nb::handle boxes, uint64_t pairwise_budget) {
  const std::vector<geometry::Box> made = BoxesOf(boxes);
  if (made.size() < 2) return false;
  return ValueOrThrow(geometry::BoxesOverlapWithin(made, pairwise_budget));
}

bool BoxesExactlyCover(nb::handle container_offset, nb::handle container_shape, nb::handle boxes,
                       uint64_t pairwise_budget) {
  const std::vector<geometry::Box> made = BoxesOf(boxes);
  if (made.empty()) return false;
  const geometry::Box container = BoxOf(container_offset, container_shape);
  RequireSameLength(static_cast<size_t>(container.rank()), static_cast<size_t>(made[0].rank()));
  return ValueOrThrow(geometry::BoxesExactlyCoverWithin(container, made, pairwise_budget));
}

}  // namespace

void BindGeometry(nb::module_& m) {
  m.def("box_contains", &BoxContains, AnyArg("outer_offset"), AnyArg("outer_shape"),
        AnyArg("inner_offset"), AnyArg("inner_shape"));
  m.def("boxes_overlap", &BoxesOverlap, AnyArg("boxes"), nb::arg("pairwise_budget"));
  m.def("boxes_exactly_cover", &BoxesExactlyCover, AnyArg("container_offset"),
        AnyArg("container_shape"), AnyArg("boxes"), nb::arg("pairwise_budget"));
}

}  // namespace mooncake::python
