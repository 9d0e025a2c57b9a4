#include "numbers.h"
#include "engine.h"
#include "errors.h"

#include "json_lib.h"

/* One level of the place that the reader is at: a key, or the number of an item. */
struct Step
{
  Bytes name;
  bool is_array;
  uint items;
};

static Bytes place_of(const std::vector<Step> &steps)
{
  Bytes place;
  for (const Step &step : steps)
  {
    if (!place.empty())
      place.push_back('/');
    place += step.is_array ? std::to_string(step.items - 1) : step.name;
  }
  return place;
}

static void take_value(const json_engine_t &reader, const std::vector<Step> &steps,
                       std::vector<Number> *out)
{
  switch (reader.value_type)
  {
  case JSON_VALUE_TRUE:
    out->push_back({place_of(steps), "1"});
    break;
  case JSON_VALUE_FALSE:
    out->push_back({place_of(steps), "0"});
    break;
  case JSON_VALUE_STRING:
  {
    // An escaped text is at least as long as the text.
    Bytes text(size_t(reader.value_len), 0);
    uchar *to = reinterpret_cast<uchar *>(&text[0]);
    const int length = json_unescape(reader.s.cs, reader.value, reader.value + reader.value_len,
                                     &my_charset_utf8mb4_bin, to, to + text.size());
    text.resize(length < 0 ? 0 : size_t(length));
    out->push_back({place_of(steps), text});
    break;
  }
  case JSON_VALUE_NUMBER:
    out->push_back({place_of(steps), Bytes(reinterpret_cast<const char *>(reader.value),
                                           size_t(reader.value_len))});
    break;
  default:
    break;
  }
}

static Bytes name_of_key(json_engine_t *reader)
{
  Bytes name;
  while (json_read_keyname_chr(reader) == 0)
    name.push_back(char(reader->s.c_next));
  return name;
}

std::vector<Number> all_numbers()
{
  std::vector<Number> numbers;
  Failure failure;
  terrace_string *text =
    database() ? terrace_database_get_statistics_json(database(), failure.out()) : nullptr;
  if (!text)
    return numbers;
  const uchar *begin = reinterpret_cast<const uchar *>(terrace_string_text(text));
  const uchar *end = begin + strlen(terrace_string_text(text));
  json_engine_t reader;
  std::vector<Step> steps;
  json_scan_start(&reader, &my_charset_utf8mb4_bin, begin, end);
  bool is_good = json_read_value(&reader) == 0 && reader.value_type == JSON_VALUE_OBJECT;
  if (is_good)
    steps.push_back({Bytes(), false, 0});
  while (is_good && !steps.empty() && json_scan_next(&reader) == 0)
  {
    switch (reader.state)
    {
    case JST_KEY:
      steps.back().name = name_of_key(&reader);
      // Behind its name the reader is at its value.
      [[fallthrough]];
    case JST_VALUE:
      is_good = json_read_value(&reader) == 0;
      steps.back().items++;
      if (!is_good)
        break;
      if (!json_value_scalar(&reader))
        steps.push_back({Bytes(), reader.value_type == JSON_VALUE_ARRAY, 0});
      else
        take_value(reader, steps, &numbers);
      break;
    case JST_OBJ_END:
    case JST_ARRAY_END:
      steps.pop_back();
      break;
    default:
      break;
    }
  }
  terrace_string_free(text);
  return numbers;
}

const char *behind(const Number &number, const char *beginning)
{
  const size_t length = strlen(beginning);
  return number.place.compare(0, length, beginning) == 0 ? number.place.c_str() + length : nullptr;
}
