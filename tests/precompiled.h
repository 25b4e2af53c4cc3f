// What most tests include, compiled once for all of them.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cubinery/gdn.h"
#include "tests/catch.h"
