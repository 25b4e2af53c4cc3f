#!/usr/bin/env bash
# Writes a project of C alone that takes the source tree in by FetchContent, and in which README's C block is built and
# run:
#   fetch_project.sh SOURCE FOLDER
# scripts/test_python.sh builds the wheel through it, so that one build shows both.
set -euo pipefail
source=$1 folder=$2
mkdir -p "$folder"
{
  awk '$0 == "```c" {on = 1; next} /^```/ {on = 0} on' "$source/README.md"
  echo 'int main(void) { return cubinery_version()[0] == 0; }'
} >"$folder/engine.c"
cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.24)
project(engine LANGUAGES C)
include(FetchContent)
set(CUBINERY_C ON)
FetchContent_Declare(cubinery SOURCE_DIR $source)
FetchContent_MakeAvailable(cubinery)
add_executable(engine engine.c)
target_link_libraries(engine PRIVATE cubinery::cubinery_c)
add_custom_command(TARGET engine POST_BUILD COMMAND engine)
END
