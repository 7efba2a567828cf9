{{/* The extender's container, which is the same beside kube-scheduler and alone. */}}

{{/* (dict "root" $ "host" "127.0.0.1") */}}
{{- define "gpushare.extenderContainer" -}}
{{- $root := .root -}}
{{- $extender := $root.Values.extender -}}
name: extender
image: {{ include "gpushare.image" (list $root $extender.image) }}
imagePullPolicy: {{ $extender.image.pullPolicy }}
args:
  - --host={{ .host }}
  - --port={{ $extender.port }}
  - --log-level={{ $extender.logLevel }}
  - --policy={{ $extender.policy }}
  # A bind that was given up by the scheduler must not still happen.
  - --bind-deadline={{ mulf 0.8 $extender.httpTimeoutSeconds }}
  - --domain={{ $root.Values.resourceDomain }}
  - --annotation-prefix={{ $root.Values.annotationPrefix }}
resources:
  {{- toYaml $extender.resources | nindent 2 }}
securityContext:
  {{- include "gpushare.restrictedContainer" $root | nindent 2 }}
startupProbe:
  {{- include "gpushare.extenderProbe" (list $root "/healthz") | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- include "gpushare.extenderProbe" (list $root "/healthz") | nindent 2 }}
  periodSeconds: 20
  failureThreshold: 3
readinessProbe:
  {{- include "gpushare.extenderProbe" (list $root "/readyz") | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 2
{{- end -}}

{{/* Asked from inside: kubelet asks the pod's address, and the extender listens on localhost. */}}
{{- define "gpushare.extenderProbe" -}}
exec:
  command:
    - python3
    - -ISc
    - >-
      import http.client, sys;
      c = http.client.HTTPConnection('127.0.0.1', {{ (index . 0).Values.extender.port }}, timeout=4);
      c.request('GET', '{{ index . 1 }}');
      sys.exit(c.getresponse().status != 200)
timeoutSeconds: 5
{{- end -}}
