/*
  What the engine shows of itself: SHOW ENGINE TERRACE STATUS, status variables, and tables of
  INFORMATION_SCHEMA.
*/
#ifndef TERRACE_HANDLER_STATUS_H
#define TERRACE_HANDLER_STATUS_H

#include "server.h"

#include <map>

/* SHOW ENGINE TERRACE STATUS, as the handlerton has it. */
bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type);

/* The library's metrics, and how many locks are held. Empty after an error, or without a database. */
std::map<Bytes, double> all_metrics();

/* Variables of SHOW STATUS, with a zero at the end. */
extern st_mysql_show_var engine_status_variables[];

/* Tables of INFORMATION_SCHEMA: how they are made, and what makes plugins of them. */
int start_tables_table(void *schema);
int start_transactions_table(void *schema);
int start_statistics_table(void *schema);
int start_levels_table(void *schema);
int start_region_table(void *schema);
int start_compactions_table(void *schema);
int start_memory_table(void *schema);
int start_nodes_table(void *schema);
extern st_mysql_information_schema engine_schema;

#endif
