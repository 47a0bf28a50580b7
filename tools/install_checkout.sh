#!/usr/bin/env bash
# install_checkout.sh ROOT BUILD_DIR: makes ROOT/.venv see this checkout as the installed package.
# Owns: python/mooncake/_core* and python/mooncake/bin (links into BUILD_DIR, in the places where a
# wheel has the files), mooncake_checkout.pth and the console script in .venv. Does nothing where a
# build has no Python module (asan, tsan).
set -euo pipefail
root=$1 build=$2
module="$(find "$build" -name '_core*.so' -not -path '*/CMakeFiles/*' -print -quit)"
[ -n "$module" ] || exit 0
package="$root/python/mooncake"
for stale in "$package"/_core*.so; do
  [ "$stale" = "$package/$(basename "$module")" ] || rm -f "$stale"
done
ln -sfn "$(realpath --relative-to="$package" "$module")" "$package/$(basename "$module")"
ln -sfn "$(realpath --relative-to="$package" "$(dirname "$module")/_core.pyi")" "$package/_core.pyi"
ln -sfn "$(realpath --relative-to="$package" "$build/bin")" "$package/bin"

site="$("$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
printf '%s\n' "$root/python" >"$site/mooncake_checkout.pth"
script="$root/.venv/bin/mooncake"
cat >"$script" <<END
#!$root/.venv/bin/python
import sys

from mooncake.cli import main

sys.exit(main())
END
chmod +x "$script"
