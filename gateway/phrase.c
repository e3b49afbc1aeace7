/* gateway/phrase.c - the registered phrases (RFC 9110 section 15, RFC 4918, 6585, 7725, 8297). */
#include "gateway/phrase.h"

#include <stddef.h>

static const char *const phrases[][100] = {
    {"OK", "Created", "Accepted", "Non-Authoritative Information", "No Content", "Reset Content", "Partial Content",
     "Multi-Status", "Already Reported", [26] = "IM Used"},
    {"Multiple Choices", "Moved Permanently", "Found", "See Other", "Not Modified",
     "Use Proxy", [7] = "Temporary Redirect", [8] = "Permanent Redirect"},
    {"Bad Request",
     "Unauthorized",
     "Payment Required",
     "Forbidden",
     "Not Found",
     "Method Not Allowed",
     "Not Acceptable",
     "Proxy Authentication Required",
     "Request Timeout",
     "Conflict",
     "Gone",
     "Length Required",
     "Precondition Failed",
     "Content Too Large",
     "URI Too Long",
     "Unsupported Media Type",
     "Range Not Satisfiable",
     "Expectation Failed",
     "I'm a teapot",
     [21] = "Misdirected Request",
     [22] = "Unprocessable Content",
     [23] = "Locked",
     [24] = "Failed Dependency",
     [25] = "Too Early",
     [26] = "Upgrade Required",
     [28] = "Precondition Required",
     [29] = "Too Many Requests",
     [31] = "Request Header Fields Too Large",
     [51] = "Unavailable For Legal Reasons"},
    {"Internal Server Error", "Not Implemented", "Bad Gateway", "Service Unavailable", "Gateway Timeout",
     "HTTP Version Not Supported", "Variant Also Negotiates", "Insufficient Storage",
     "Loop Detected", [10] = "Not Extended", [11] = "Network Authentication Required"},
};

const char *status_phrase(unsigned status)
{
    if (status < 200 || status > 599)
        return "";
    const char *phrase = phrases[status / 100 - 2][status % 100];
    return phrase == NULL ? "" : phrase;
}
