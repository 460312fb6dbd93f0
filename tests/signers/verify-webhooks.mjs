// `node verify-webhooks.mjs DELIVERIES SECRET...`: which secret verifies which delivery by the library that Standard
// Webhooks has for JavaScript. DELIVERIES is a JSON array of {body, headers}; prints an array of booleans for each.

import { Webhook, WebhookVerificationError } from "standardwebhooks";

const [deliveries, ...secrets] = process.argv.slice(2);

function verifies(secret, { body, headers }) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

console.log(JSON.stringify(JSON.parse(deliveries).map((delivery) => secrets.map((secret) => verifies(secret, delivery)))));
