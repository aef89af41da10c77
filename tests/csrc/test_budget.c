#include "budget.h"

#include <math.h>
#include <pthread.h>

#include "check.h"

#define S 1000000000ULL

static void it_begins_with_one_second_of_the_floor(void)
{
    uint64_t word = 0;
    CHECK(budget_balance(&word, 3, 5 * S) == 3);
    for (int i = 0; i < 3; i++)
        CHECK(budget_withdraw(&word, 3, 5 * S) == 0);
    CHECK(budget_withdraw(&word, 3, 5 * S) == -1);
}

static void nothing_comes_from_nothing(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 100; i++) {
        budget_deposit(&word, 0, 0, (uint64_t)i * S);
        CHECK(budget_withdraw(&word, 0, (uint64_t)i * S) == -1);
    }
}

static void requests_and_time_pay_in(void)
{
    uint64_t word = 0;
    while (budget_withdraw(&word, 0.5, S) == 0)
        ;
    for (int i = 0; i < 20; i++)
        budget_deposit(&word, 0.1, 0.5, S);
    CHECK(fabs(budget_balance(&word, 0.5, S) - 2) < 0.01 || budget_balance(&word, 0.5, S) > 2);
    CHECK(budget_withdraw(&word, 0.5, S) == 0);
    CHECK(budget_balance(&word, 0.5, 5 * S) > 2); /* four seconds of the floor */
}

static void what_is_not_used_fades(void)
{
    uint64_t word = 0;
    for (int i = 0; i < 10000; i++)
        budget_deposit(&word, 1, 0, S);
    CHECK(budget_balance(&word, 0, S) > 9000);
    CHECK(budget_balance(&word, 0, 101 * S) < 1); /* ten time constants */
    CHECK(budget_balance(&word, 2, 10001 * S) <= 2 * BUDGET_TTL_S + 0.01);
}

static void a_clock_that_stands_or_goes_back_pays_nothing(void)
{
    uint64_t word = 0;
    while (budget_withdraw(&word, 3, 100 * S) == 0)
        ;
    CHECK(budget_withdraw(&word, 3, 100 * S) == -1 && budget_withdraw(&word, 3, 50 * S) == -1);
}

enum { THREADS = 4, TRIES = 20000 };

static void *withdraw_all(void *word)
{
    intptr_t got = 0;
    for (int i = 0; i < TRIES; i++)
        got += budget_withdraw(word, 0, S) == 0;
    return (void *)got;
}

static void threads_together_get_what_is_there(void)
{
    uint64_t word = 0;
    pthread_t threads[THREADS];
    intptr_t sum = 0;
    for (int i = 0; i < 5000; i++)
        budget_deposit(&word, 1, 0, S);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, withdraw_all, &word) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *got;
        pthread_join(threads[i], &got);
        sum += (intptr_t)got;
    }
    CHECK(sum == 5000 && budget_balance(&word, 0, S) < 1);
}

int main(void)
{
    it_begins_with_one_second_of_the_floor();
    nothing_comes_from_nothing();
    requests_and_time_pay_in();
    what_is_not_used_fades();
    a_clock_that_stands_or_goes_back_pays_nothing();
    threads_together_get_what_is_there();
    return 0;
}
