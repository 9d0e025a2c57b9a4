#include "attributes.h"
#include "engine.h"

#include <random>

static const char NONE[] = "none";
static const char OF_DATABASE[] = "database";

ha_create_table_option table_attributes[] = {
  HA_TOPTION_STRING("TERRACE_TTL", ttl),
  HA_TOPTION_ENUM("TERRACE_TIER", tier, "SSD,OBJECT", 0),
  HA_TOPTION_STRING("TERRACE_COMPRESSION", compression),
  HA_TOPTION_END};

Bytes option_of(const terrace_table_options *options, const char *name)
{
  Failure failure;
  terrace_string *text = terrace_table_options_get(options, name, failure.out());
  const Bytes value = text ? terrace_string_text(text) : "";
  terrace_string_free(text);
  return value;
}

/* A text in lower case, or what stands for none. */
static Bytes text_of(const char *text, const char *otherwise)
{
  Bytes value = text && *text ? text : otherwise;
  for (char &c : value)
    c = char(my_tolower(&my_charset_latin1, c));
  return value;
}

static Bytes ttl_of(const ha_table_option_struct *attributes)
{
  return text_of(attributes ? attributes->ttl : nullptr, NONE);
}

static Bytes compression_of(const ha_table_option_struct *attributes)
{
  return text_of(attributes ? attributes->compression : nullptr, OF_DATABASE);
}

static uint tier_of(const ha_table_option_struct *attributes)
{
  return attributes ? attributes->tier : 0;
}

bool has_ttl(const ha_table_option_struct *attributes) { return ttl_of(attributes) != NONE; }

bool same_attributes(const ha_table_option_struct *one, const ha_table_option_struct *two)
{
  return ttl_of(one) == ttl_of(two) && tier_of(one) == tier_of(two) &&
         compression_of(one) == compression_of(two);
}

int set_tag(terrace_table_options *options, Failure *failure)
{
  if (option_of(options, "tag") != "0")
    return 0;
  // By chance, so that no two are the same. Numbers of tables, which earlier versions took, are less.
  std::random_device chance;
  const ulonglong tag = 1ULL << 63 | ulonglong(chance()) << 32 | chance();
  return terrace_table_options_set(options, "tag", std::to_string(tag).c_str(), failure->out()) !=
         TERRACE_OK;
}

int set_attributes(const ha_table_option_struct *attributes, terrace_table_options *options)
{
  const struct
  {
    const char *attribute, *option;
    Bytes value;
  } of_all[] = {
    {"TERRACE_TTL", "ttl", ttl_of(attributes)},
    {"TERRACE_TIER", "cold", tier_of(attributes) ? "object" : "ssd"},
    {"TERRACE_COMPRESSION", "compression", compression_of(attributes)},
  };
  for (auto &one : of_all)
  {
    Failure failure;
    if (terrace_table_options_set(options, one.option, one.value.c_str(), failure.out()) !=
        TERRACE_OK)
    {
      my_error(ER_BAD_OPTION_VALUE, MYF(0), one.value.c_str(), one.attribute);
      return HA_WRONG_CREATE_OPTION;
    }
  }
  Failure failure;
  return has_ttl(attributes) && set_tag(options, &failure) ? failure.handler_error(current_thd) : 0;
}
