/* config/tls_files.c - see tls_files.h. OpenSSL's own texts say little to an operator: the file and the block are
 * named. */
#include "config/tls_files.h"

#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "config/file.h"
#include "config/secret.h"

#define PEM_MAX (4 * 1024 * 1024)

/* The file that a member names. The caller frees *data with conf_file_free(); NULL: absent, or failed. */
static const char *read_pem(struct conf_reader *reader, const struct conf_where *at, const json_t *value, char **data,
                            size_t *len)
{
    char quoted[CONF_QUOTED_PATH];
    const char *problem, *name = json_string_value(value);
    *data = NULL;
    if (value == NULL)
        return NULL;
    if (name == NULL || name[0] == '\0') {
        conf_fail_value(reader, at, value, "the path of a PEM file");
        return NULL;
    }
    const char *path = conf_store_path(reader, name);
    if (path == NULL)
        return NULL;
    *data = conf_file_read(path, PEM_MAX, len, &problem);
    if (*data == NULL) {
        conf_quote(path, quoted, sizeof(quoted));
        conf_fail(reader, at, "cannot read %s: %s", quoted, problem);
    }
    return path;
}

static void fail_pem(struct conf_reader *reader, const struct conf_where *at, const char *what, const char *path,
                     const char *problem)
{
    char quoted[CONF_QUOTED_PATH];
    conf_quote(path, quoted, sizeof(quoted));
    conf_fail(reader, at, "expected a PEM file with a %s, but %s %s", what, quoted, problem);
}

/* Did reading end because there is no further block, and not because of one that is broken? */
static bool at_the_end(void)
{
    unsigned long error = ERR_peek_last_error();
    ERR_clear_error();
    return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

/* Counts the certificates; *first, if asked for, is freed by the caller. False: block *count + 1 is broken. */
static bool read_certificates(const char *data, size_t len, size_t *count, X509 **first)
{
    BIO *bio = BIO_new_mem_buf(data, (int)len);
    X509 *one;
    *count = 0;
    ERR_clear_error();
    while (bio != NULL && (one = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)) != NULL) {
        if (++*count == 1 && first != NULL)
            *first = one;
        else
            X509_free(one);
    }
    BIO_free(bio);
    return bio != NULL && at_the_end();
}

void conf_read_certificates(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                            const struct conf_field *field, void *to)
{
    char *data, problem[96];
    size_t len = 0, count;
    (void)field;
    const char *path = read_pem(reader, at, value, &data, &len);
    if (data != NULL) {
        bool sound = read_certificates(data, len, &count, NULL);
        if (!sound) {
            (void)snprintf(problem, sizeof problem, "is broken: its certificate number %zu cannot be read", count + 1);
            fail_pem(reader, at, "CERTIFICATE", path, problem);
        } else if (count == 0) {
            fail_pem(reader, at, "CERTIFICATE", path, "has no such PEM block in it");
        }
    }
    conf_file_free(data, len);
    *(const char **)to = path;
}

static int no_password(char *out, int cap, int writing, void *asked)
{
    (void)out, (void)cap, (void)writing;
    *(bool *)asked = true;
    return -1;
}

/* NULL: *problem says why. */
static EVP_PKEY *read_key(const char *data, size_t len, const char **problem)
{
    bool asked = false;
    BIO *bio = BIO_new_mem_buf(data, (int)len);
    ERR_clear_error();
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, no_password, &asked);
    bool none = key == NULL && !asked && strstr(data, "PRIVATE KEY-----") == NULL;
    *problem = asked  ? "is protected by a password, which the gateway has no setting for"
               : none ? "has no such PEM block in it"
                      : "is broken: its key cannot be read";
    ERR_clear_error();
    BIO_free(bio);
    return key;
}

void conf_read_private_key(struct conf_reader *reader, const struct conf_where *at, json_t *value,
                           const struct conf_field *field, void *to)
{
    char *data;
    size_t len = 0;
    const char *problem;
    (void)field;
    const char *path = read_pem(reader, at, value, &data, &len);
    if (data != NULL) {
        EVP_PKEY *key = read_key(data, len, &problem);
        if (key == NULL)
            fail_pem(reader, at, "PRIVATE KEY", path, problem);
        EVP_PKEY_free(key);
        conf_look_at_mode(reader, at, path);
    }
    conf_file_free(data, len);
    *(const char **)to = path;
}

void conf_check_key_pair(struct conf_reader *reader, const struct conf_where *at, const char *cert_file,
                         const char *key_file)
{
    const char *problem;
    char quoted[2][CONF_QUOTED_PATH];
    size_t cert_len = 0, key_len = 0, count;
    X509 *cert = NULL;
    EVP_PKEY *key = NULL;
    char *cert_data = conf_file_read(cert_file, PEM_MAX, &cert_len, &problem);
    char *key_data = conf_file_read(key_file, PEM_MAX, &key_len, &problem);
    if (cert_data != NULL && key_data != NULL) {
        (void)read_certificates(cert_data, cert_len, &count, &cert);
        key = read_key(key_data, key_len, &problem);
    }
    if (cert == NULL || key == NULL || X509_check_private_key(cert, key) != 1) {
        conf_quote(key_file, quoted[0], sizeof quoted[0]);
        conf_quote(cert_file, quoted[1], sizeof quoted[1]);
        conf_fail(reader, &(struct conf_where){at, "key_file", 0},
                  "expected the key of the certificate, but that of %s belongs to another one than %s has", quoted[0],
                  quoted[1]);
    }
    ERR_clear_error();
    X509_free(cert);
    EVP_PKEY_free(key);
    conf_file_free(cert_data, cert_len);
    conf_file_free(key_data, key_len);
}
