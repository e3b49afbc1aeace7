/*
 * gateway/timeparse.c - RFC 3339 times, those that the commands print, dates and ages to Unix milliseconds.
 *
 * No libc parser is used: strptime() follows the locale and mktime() the time zone of the machine, and both take
 * dates that don't exist. What the time is used for, and the message for a bad one, is the caller's.
 */
#include "gateway/timeparse.h"

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool take_char(struct slice *text, char wanted)
{
    if (text->len == 0 || text->data[0] != wanted) {
        return false;
    }
    text->data++;
    text->len--;
    return true;
}

/* Exactly `count` digits, no sign, no blank. */
static bool take_digits(struct slice *text, size_t count, int64_t *out)
{
    int64_t value = 0;
    if (text->len < count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_digit(text->data[i])) {
            return false;
        }
        value = value * 10 + (text->data[i] - '0');
    }
    text->data += count;
    text->len -= count;
    *out = value;
    return true;
}

static int64_t days_in_month(int64_t year, int64_t month)
{
    static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

/* Days from 1970-01-01 in the Gregorian calendar, negative before it. Years are counted from March, so that the leap
 * day comes last and the months before it have a fixed length. */
static int64_t days_since_epoch(int64_t year, int64_t month, int64_t day)
{
    int64_t shifted_year = month > 2 ? year : year - 1;
    int64_t shifted_month = month > 2 ? month - 3 : month + 9;
    int64_t leap_days = shifted_year / 4 - shifted_year / 100 + shifted_year / 400;
    return shifted_year * 365 + leap_days + (153 * shifted_month + 2) / 5 + day - 1 - 719468;
}

static bool take_date(struct slice *text, int64_t *days)
{
    int64_t year, month, day;
    if (!take_digits(text, 4, &year) || !take_char(text, '-') || !take_digits(text, 2, &month) ||
        !take_char(text, '-') || !take_digits(text, 2, &day)) {
        return false;
    }
    if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) {
        return false;
    }
    *days = days_since_epoch(year, month, day);
    return true;
}

static bool take_clock(struct slice *text, int64_t *seconds)
{
    int64_t hour, minute, second;
    if (!take_digits(text, 2, &hour) || !take_char(text, ':') || !take_digits(text, 2, &minute) ||
        !take_char(text, ':') || !take_digits(text, 2, &second)) {
        return false;
    }
    if (hour > 23 || minute > 59 || second > 60) { /* 60: a leap second, the first of the next minute here */
        return false;
    }
    *seconds = hour * 3600 + minute * 60 + second;
    return true;
}

static bool take_fraction(struct slice *text, int64_t *millis)
{
    static const int64_t scale[] = {100, 10, 1};
    bool finer = false;
    size_t digits = 0;
    *millis = 0;
    if (!take_char(text, '.')) {
        return true;
    }
    for (; text->len > 0 && is_digit(text->data[0]); digits++) {
        int64_t digit = text->data[0] - '0';
        if (digits < 3) {
            *millis += digit * scale[digits];
        } else {
            finer = finer || digit != 0;
        }
        text->data++;
        text->len--;
    }
    *millis += finer;
    return digits > 0;
}

static bool take_offset(struct slice *text, int64_t *seconds)
{
    int64_t hour, minute;
    *seconds = 0;
    if (take_char(text, 'Z') || take_char(text, 'z')) {
        return true;
    }
    bool west = take_char(text, '-');
    if (!west && !take_char(text, '+')) {
        return false;
    }
    if (!take_digits(text, 2, &hour)) {
        return false;
    }
    (void)take_char(text, ':');
    if (!take_digits(text, 2, &minute) || hour > 23 || minute > 59) {
        return false;
    }
    *seconds = (hour * 3600 + minute * 60) * (west ? -1 : 1);
    return true;
}

/* Behind a date: nothing, or a clock and an offset. The commands' tables have blanks before both. */
static bool take_rest(struct slice *text, int64_t *seconds, int64_t *millis, int64_t *offset)
{
    *seconds = *millis = *offset = 0;
    if (text->len == 0) {
        return true;
    }
    bool blank = take_char(text, ' ');
    if (!blank && !take_char(text, 'T') && !take_char(text, 't')) {
        return false;
    }
    if (!take_clock(text, seconds) || !take_fraction(text, millis)) {
        return false;
    }
    if (blank) {
        (void)take_char(text, ' ');
    }
    return take_offset(text, offset) && text->len == 0;
}

static bool parse_date(struct slice text, uint64_t *out_ms)
{
    int64_t days, seconds, millis, offset;
    if (!take_date(&text, &days) || !take_rest(&text, &seconds, &millis, &offset)) {
        return false;
    }
    int64_t unix_ms = (days * 86400 + seconds - offset) * 1000 + millis;
    *out_ms = unix_ms < 0 ? 0 : (uint64_t)unix_ms;
    return true;
}

static uint64_t unit_ms(char unit)
{
    switch (unit) {
    case 's': return 1000;
    case 'm': return 60 * 1000;
    case 'h': return 3600 * 1000;
    case 'd': return 86400 * 1000;
    default: return 0;
    }
}

static bool parse_age(struct slice text, uint64_t now_ms, uint64_t *out_ms)
{
    uint64_t age = 0;
    uint64_t unit = text.len < 2 ? 0 : unit_ms(text.data[text.len - 1]);
    if (unit == 0) {
        return false;
    }
    for (size_t i = 0; i < text.len - 1; i++) {
        if (!is_digit(text.data[i])) {
            return false;
        }
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (age > (UINT64_MAX - digit) / 10) {
            return false;
        }
        age = age * 10 + digit;
    }
    *out_ms = age > now_ms / unit ? 0 : now_ms - age * unit;
    return true;
}

bool time_parse(struct slice text, uint64_t now_ms, uint64_t *out_ms)
{
    return parse_date(text, out_ms) || parse_age(text, now_ms, out_ms);
}
