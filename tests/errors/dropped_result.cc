// error: nodiscard
#include "cubinery/options.h"

void read() { cubinery::Options::from_env(); }
