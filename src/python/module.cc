// mooncake._core: the C++ core as the Python face sees it. Conversion only.
#include <nanobind/nanobind.h>

#include "python/bindings.h"

NB_MODULE(_core, m) {
  // A program may end while its globals still hold manifests; that is no fault to report on stderr.
  nanobind::set_leak_warnings(false);
  m.doc() = "The C++ core of Mooncake. Private: use mooncake.reshard.";
  mooncake::python::BindChecks(m);
  mooncake::python::BindManifests(m);
  mooncake::python::BindColumns(m);
  mooncake::python::BindGeometry(m);
  mooncake::python::BindPlans(m);
  mooncake::python::BindPlanner(m);
  mooncake::python::BindStore(m);
  mooncake::python::BindObjects(m);
}
