//! What each engine does with memory and parallel sizes. One file an engine, one table of rules a version.
