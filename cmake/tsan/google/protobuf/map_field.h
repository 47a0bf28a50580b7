// Stands before the system's header of the same name in thread sanitizer builds. Where it sees
// __SANITIZE_THREAD__, a map field has two members more than in the system's libprotobuf, which was
// compiled without: messages with map fields would be laid out in two ways.
#pragma once

#include <memory>  // The standard library must go on seeing the macro: it looks once, here.

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
