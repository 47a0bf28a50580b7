// One function a noun: each adds its classes and functions to the module `mooncake._core`.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake::python {

void BindChecks(nanobind::module_& m);     // what the small dataclasses' constructors call
void BindManifests(nanobind::module_& m);  // placements, stored manifests, runtime bindings
void BindColumns(nanobind::module_& m);    // placements from columns
void BindGeometry(nanobind::module_& m);   // boxes
void BindPlans(nanobind::module_& m);      // transfer regions, plans
void BindPlanner(nanobind::module_& m);    // what makes plans
void BindStore(nanobind::module_& m);      // the store's client for weights
void BindObjects(nanobind::module_& m);    // its client for ordinary objects

}  // namespace mooncake::python
