#include "python/handles.h"

#include <fmt/format.h>

#include <utility>

#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"

namespace mooncake::python {

namespace {

template <class Handle>
auto ValueOf(nb::handle object, PyClass& type, const char* name) {
  if (!type.IsInstance(object)) Refuse(fmt::format("{} must be a {}", name, type.name()));
  return nb::cast<const Handle&>(Get(object, N()._handle)).value;
}

}  // namespace

manifest::PlacementPtr PlacementOf(nb::handle object, const char* name) {
  return ValueOf<PlacementHandle>(object, Classes().placement, name);
}

manifest::StoredManifestPtr StoredManifestOf(nb::handle object, const char* name) {
  return ValueOf<StoredManifestHandle>(object, Classes().stored_manifest, name);
}

manifest::RuntimeBindingPtr RuntimeBindingOf(nb::handle object, const char* name) {
  return ValueOf<RuntimeBindingHandle>(object, Classes().runtime_binding, name);
}

nb::object ToPython(manifest::PlacementPtr placement) {
  return Classes().placement.type().attr("_of")(PlacementHandle{std::move(placement)});
}

nb::object ToPython(manifest::StoredManifestPtr stored) {
  return Classes().stored_manifest.type().attr("_of")(StoredManifestHandle{std::move(stored)});
}

}  // namespace mooncake::python
