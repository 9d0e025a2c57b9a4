/*
  The server's recovery of statements that change tables, and what it leaves to the handler.

  The server starts the plugin, asks it for prepared transactions, and then does what its log of DDL
  says. It says when it has done so.

  Thread safety: the server's start has no other thread. Where the plugin is installed later there is
  no recovery.
*/
#ifndef TERRACE_HANDLER_RECOVERY_H
#define TERRACE_HANDLER_RECOVERY_H

#include "server.h"

/*
  When the plugin starts: settles renames, before the server has changed anything. From here on
  drops of partitioned tables come to the plugin first, until it stops.
*/
void prepare_recovery(handlerton *hton);
/* Before the server reads its log of DDL: its drops of partitioned tables drop what has no list. */
void recovery_begins();
/* When the plugin stops, before it closes the database. */
void give_drop_back();
/* Whether the server does what its log of DDL says. */
bool is_recovering();

#endif
