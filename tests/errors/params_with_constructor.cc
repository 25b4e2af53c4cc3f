// error: kernel parameters are copied byte by byte
#include <string>

#include "cubinery/kernel.h"

void launch(const cubinery::Kernel& kernel) { kernel.launch(nullptr, {}, std::string()).value(); }
