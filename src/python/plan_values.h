// What plans are made with, read from Python. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include "reshard/plan.h"

namespace mooncake::python {

namespace nb = nanobind;

// The fields of a PlanningLimits.
reshard::PlanningLimits ReadLimits(nb::handle limits);

}  // namespace mooncake::python
