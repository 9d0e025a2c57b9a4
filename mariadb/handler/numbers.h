/*
  All statistics of the library, each with its place: "pm/capacity", "tables/2/levels/0/bytes".
*/
#ifndef TERRACE_HANDLER_NUMBERS_H
#define TERRACE_HANDLER_NUMBERS_H

#include "server.h"

#include <vector>

/* A statistic: its place, and what it says. A truth is 1 or 0; what is not known is not there. */
struct Number
{
  Bytes place;
  Bytes value;
};

/* The statistics as of now, in the library's order. Empty after an error, or without a database. */
std::vector<Number> all_numbers();

/* The rest of a place behind a beginning such as "pm/"; NULL for a place that begins otherwise. */
const char *behind(const Number &number, const char *beginning);

#endif
