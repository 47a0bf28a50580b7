// The C++ values behind the big dataclasses of the Python face, which keep them as `_handle`.
//
// How other bindings get from a Python manifest to its C++ value and back. Nothing is copied. The
// GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include "manifest/types.h"
#include "reshard/plan.h"

namespace mooncake::python {

namespace nb = nanobind;

struct PlacementHandle {
  manifest::PlacementPtr value;
};
struct StoredManifestHandle {
  manifest::StoredManifestPtr value;
};
struct RuntimeBindingHandle {
  manifest::RuntimeBindingPtr value;
};
struct LogicalPlanHandle {
  reshard::LogicalPlanPtr value;
};

// ValueError "<name> must be a WeightPlacementManifest", ... for anything else.
manifest::PlacementPtr PlacementOf(nb::handle object, const char* name = "placement");
manifest::StoredManifestPtr StoredManifestOf(nb::handle object, const char* name = "manifest");
manifest::RuntimeBindingPtr RuntimeBindingOf(nb::handle object, const char* name = "binding");

// WeightPlacementManifest, WeightManifest: items are made on access.
nb::object ToPython(manifest::PlacementPtr placement);
nb::object ToPython(manifest::StoredManifestPtr stored);

}  // namespace mooncake::python
